"""`trainledger.compare`: plans side by side, or one plan on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.compare import Comparison, on_devices
from trainledger.answer.compare import compare as compared
from trainledger.api.given import Given, draft_from, name_of
from trainledger.api.shown import Shown
from trainledger.show.compare import document, sections
from trainledger.show.estimate import View
from trainledger.show.table import Section


@dataclass(frozen=True, slots=True, repr=False)
class CompareResult(Shown):
    """A comparison. `answer` is the whole of it."""

    answer: Comparison

    def to_dict(self) -> dict[str, Any]:
        """What `trainledger compare --json` prints."""
        return document(self.answer)

    def __repr__(self) -> str:
        return f"<CompareResult: {', '.join(side.name for side in self.answer.sides)}>"

    def _sections(self, block: str) -> Sequence[Section]:
        return sections(self.answer, View())


def compare(*plans: Given, devices: Sequence[str] = (), **sets: Any) -> CompareResult:
    """Two or more plans side by side, or one on these devices: what each holds, and what each difference moved.

    A plan is a mapping of keys, a file, or a list of a run's files. `sets` changes a key of all of them:
    `batch__micro_batch=2`. Raises InputError with every problem.
    """
    given = [(name_of(plan, number), draft_from(plan, sets).data) for number, plan in enumerate(plans, 1)]
    if devices and len(given) == 1:
        return CompareResult(compared(on_devices(given[0][1], devices)))
    return CompareResult(compared(given))
