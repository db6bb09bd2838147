"""What TRL's supervised trainer makes of all logits for its log, by release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.preference_row import TRL, Cut, Metric
from trainledger.facts.versions import at_least

TASK = "sft"


@dataclass(frozen=True, slots=True)
class Shows:
    """From the release `since` on and before `until`, once the loss is made and while the model's outputs live:
    `entropies` of the logits, all of them or without the last token's (`cut`: a view, or a copy that stays until
    accuracy has one), and `copied`: those without the last token's, a contiguous copy, of which accuracy is told."""

    since: str
    until: str
    entropies: Metric
    cut: Cut
    copied: bool
    source: Source


def _trl(release: str) -> Source:
    return Source("TRL SFTTrainer", "trl/trainer/sft_trainer.py, compute_loss; utils.py, entropy_from_logits", release)


SHOWN: tuple[Shows, ...] = (
    Shows("1.6", "1.15", Metric.ENTROPY, Cut.VIEW, False, _trl("1.6.0 to 1.14.0")),
    Shows("1.3", "1.6", Metric.ENTROPY, Cut.COPY, True, _trl("1.3.0 to 1.5.1")),
    Shows("0.23", "1.3", Metric.ENTROPY, Cut.NONE, True, _trl("0.23.1 to 1.2.0")),
    Shows("0.22", "0.23", Metric.ENTROPY_ROWS, Cut.NONE, True, _trl("0.22.2")),
    Shows("0.15", "0.22", Metric.NONE, Cut.NONE, True, _trl("0.15.2 to 0.21.0")),
)


def shown_of(versions: Mapping[str, str]) -> Shows | None:
    """What the trainer of these releases makes; None where it makes nothing, or none of them is TRL's."""
    release = versions.get(TRL, "")
    found = (row for row in SHOWN if at_least(release, row.since) and not at_least(release, row.until))
    return next(found, None) if release else None
