"""What the library hands back: the answer, and the ways to see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.answer.estimate import Estimate
from trainledger.answer.formula import explain
from trainledger.answer.review import review
from trainledger.api.shown import Shown
from trainledger.importers.draft import Draft
from trainledger.show import explain as explained
from trainledger.show.document import document
from trainledger.show.estimate import View, sections
from trainledger.show.table import Screen, Section


@dataclass(frozen=True, slots=True, repr=False)
class Result(Shown):
    """An estimate with its draft. `answer` is the whole of it; the methods are what the command line prints."""

    answer: Estimate
    draft: Draft

    def to_dict(self, moment: str = "", rank: str = "") -> dict[str, Any]:
        """What `trainledger estimate --json` prints. Raises InputError for an unknown moment or rank."""
        return document(self.answer, self.draft, moment, rank)

    def explain(self, account: str, moment: str = "") -> dict[str, Any]:
        """What `trainledger explain --json` prints. Raises InputError when the word means nothing in the ledger."""
        return explained.document(explain(self.answer, account, moment), account)

    def review(self) -> dict[str, Any]:
        """What `trainledger review --json` prints: model states on one page."""
        return review(self.answer).to_dict()

    def __repr__(self) -> str:
        peak, outcome = self.answer.peak, self.answer.verdict.outcome
        return f"<Result: {peak.allocated.expected:,} B allocated at {peak.moment!r}, verdict {outcome}>"

    def _sections(self, block: str) -> tuple[Section, ...]:
        width = 100
        return sections(self.answer, self.draft, View(), Screen(False, width, block))
