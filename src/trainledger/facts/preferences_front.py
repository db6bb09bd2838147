"""Trainers of front ends over preferences that write their own loss functions over TRL's classes."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.preference_row import (
    LLAMAFACTORY,
    READ,
    SWIFT,
    Asked,
    Before,
    Cut,
    Metric,
    Picked,
    Preference,
    Reading,
)

_FACTORY = Source(
    "LLaMA-Factory trainers",
    "llamafactory/train/{dpo,kto}/trainer.py, concatenated_forward, compute_reference_log_probs, "
    "get_batch_loss_metrics; train/trainer_utils.py, get_batch_logps, create_ref_model",
    "0.9.3 to 0.9.5",
)
_SWIFT = Source(
    "ms-swift trainers",
    "swift/rlhf_trainers/{rlhf_mixin,dpo_trainer,kto_trainer}.py, concatenated_forward, forward, "
    "get_per_token_logps; swift/trainers/mixin.py, prepare_logits_to_keep",
    "4.6.0",
)
_WIDE = Reading(Picked.WHOLE, wide=True)
FRONT: tuple[Preference, ...] = (
    Preference(
        LLAMAFACTORY, "", "dpo", 0, 1, 3, 0, READ, _FACTORY, Reading(Picked.WHOLE, names=True, wide=True, frees=True)
    ),
    Preference(
        LLAMAFACTORY,
        "",
        "kto",
        1,
        2,
        6,
        0,
        READ,
        _FACTORY,
        Reading(Picked.WHOLE, within=Metric.PICKED, before=Before.KEPT, wide=True, frees=True),
    ),
    Preference(LLAMAFACTORY, "", "orpo", 0, 0, 3, 0, READ, _FACTORY, _WIDE),
    Preference(LLAMAFACTORY, "", "simpo", 0, 0, 3, 0, READ, _FACTORY, _WIDE),
    Preference(SWIFT, "", "dpo", 0, 1, 3, 0, READ, _SWIFT, Reading(Picked.ROWS, Cut.NONE, kept=True)),
    Preference(
        SWIFT, "", "kto", 1, 2, 6, 0, READ, _SWIFT, Reading(Picked.ROWS, Cut.NONE, kept=True, asked=Asked.CACHE)
    ),
)
