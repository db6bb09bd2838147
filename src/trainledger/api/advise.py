"""`trainledger.advise`: what to change of a plan, with bytes and price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.advise import Advice
from trainledger.answer.advise import advise as advice_of
from trainledger.answer.advise_work import Option
from trainledger.api.given import Given, draft_from
from trainledger.api.shown import Shown
from trainledger.facts.move_prices import COMBINED
from trainledger.importers.changed_lines import FileLine, changed_lines
from trainledger.importers.draft import Draft
from trainledger.show.advise import document, sections
from trainledger.show.estimate import View
from trainledger.show.table import Section


@dataclass(frozen=True, slots=True, repr=False)
class AdviseResult(Shown):
    """Advice with the plan's draft. `answer` is the whole of it."""

    answer: Advice
    draft: Draft

    def to_dict(self) -> dict[str, Any]:
        """What `trainledger advise --json` prints."""
        return document(self.answer, self.lines)

    def lines(self, option: Option) -> tuple[FileLine, ...]:
        """The lines of the plan's files that make a change."""
        return changed_lines(option.taken.changes, self.draft)

    def __repr__(self) -> str:
        best = self.answer.best
        return f"<AdviseResult: {best[0].taken.name if best else 'nothing to change'}>"

    def _sections(self, block: str) -> Sequence[Section]:
        return sections(self.answer, self.lines, View(), len(self.answer.best))


def advise(plan: Given, combine: int = COMBINED.most, **sets: Any) -> AdviseResult:
    """What to change of a plan (keys, a file, or a run's files): single changes and combinations, best first.

    `combine`: up to how many changes together. `sets` changes keys before that: `batch__micro_batch=2`.
    Raises InputError with every problem.
    """
    draft = draft_from(plan, sets)
    return AdviseResult(advice_of(draft.data, most=combine), draft)
