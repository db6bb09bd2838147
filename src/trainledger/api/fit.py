"""`trainledger.fit`: the limits of a plan on its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.anchor import unexplained
from trainledger.answer.fit import USUAL, Fit, Wanted, knob_of
from trainledger.answer.fit import fit as limits_of
from trainledger.api.given import Given, draft_from
from trainledger.api.shown import Shown
from trainledger.facts.fit_knobs import CONFIDENCE
from trainledger.importers.measured import measured_runs
from trainledger.show.estimate import View
from trainledger.show.fit import document, sections
from trainledger.show.table import Section


@dataclass(frozen=True, slots=True, repr=False)
class FitResult(Shown):
    """Limits. `answer` is the whole of it."""

    answer: Fit

    def to_dict(self) -> dict[str, Any]:
        """What `trainledger fit --json` prints."""
        return document(self.answer)

    @property
    def values(self) -> dict[str, int | str | None]:
        """Each limit by its name: the value that fits, None where none does."""
        return {one.knob.value: one.found.best.value if one.found.best else None for one in self.answer.limits}

    def __repr__(self) -> str:
        return f"<FitResult: {', '.join(f'{name} {value}' for name, value in self.values.items())}>"

    def _sections(self, block: str) -> Sequence[Section]:
        return sections(self.answer, View())


def fit(
    plan: Given,
    find: str | Sequence[str] = (),
    measured: str | Sequence[str] = (),
    confidence: float = CONFIDENCE.high,
    **more: Any,
) -> FitResult:
    """The limits of a plan: the largest micro-batch and sequence that fit, or what `find` names, one or several.

    `measured`: small runs, each a file of run records or a text such as `reserved=11GiB,batch.micro_batch=1`. `family`:
    of models; `frontier`: True for the micro-batch of each sequence (with `layers-unfrozen` in `find` the layers of
    each); any further name changes a key of the plan: `batch__micro_batch=2`. Raises InputError with every problem.
    """
    family, frontier = str(more.pop("family", "")), bool(more.pop("frontier", False))
    names, runs_of = ((one,) if isinstance(one, str) else tuple(one) for one in (find, measured))
    wanted = Wanted(tuple(dict.fromkeys(map(knob_of, names))) or USUAL, family, frontier)
    data = draft_from(plan, more).data
    runs = measured_runs(runs_of, data)
    return FitResult(limits_of(data, wanted, confidence, unexplained(runs) if runs else None))
