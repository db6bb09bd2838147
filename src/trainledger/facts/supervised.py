"""How supervised trainers read all logits: losses with smoothed labels, or scaled by a token's probability; what TRL's
makes of them for its log, by release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.preference_row import TRL, Cut, Metric, Picked, Reading
from trainledger.facts.versions import at_least

TASK = "sft"
SMOOTHS = "label_smoothing_factor"  # the option of the Trainer's arguments
SCALED = "dft"  # the name of TRL's loss


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


@dataclass(frozen=True, slots=True)
class ReadLoss:
    """A loss that reads all logits as the model hands them out, from the release `since` of TRL on and before `until`
    (empty: of any, and without TRL)."""

    since: str
    until: str
    reading: Reading
    source: Source


SMOOTHED = ReadLoss(
    "",
    "",
    Reading(Picked.SMOOTHED, Cut.COPY),
    Source(
        "Transformers Trainer, smoothed labels",
        "transformers/trainer_pt_utils.py, LabelSmoother; trainer.py, compute_loss; trl/trainer/sft_trainer.py",
        "4.40.2, 5.24.0; TRL 1.16.0",
    ),
)
_DFT = Source(
    "TRL SFTTrainer, dft_loss", "trl/trainer/sft_trainer.py; utils.py, selective_log_softmax", "0.24.0 to 1.14.0"
)
SCALED_LOSSES: tuple[ReadLoss, ...] = (
    ReadLoss("1.14", "1.15", Reading(Picked.KERNEL, Cut.NONE), _DFT),
    ReadLoss("0.23", "1.14", Reading(Picked.ROWS, Cut.NONE), _DFT),
)


def scaled_of(versions: Mapping[str, str]) -> ReadLoss | None:
    """How TRL of this release reads all logits for the loss that a token's probability scales; None where its head is
    fused."""
    release = versions.get(TRL, "")
    found = (row for row in SCALED_LOSSES if at_least(release, row.since) and not at_least(release, row.until))
    return next(found, None) if release else None
