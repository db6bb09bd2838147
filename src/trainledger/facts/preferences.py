"""How trainers compute losses over preferences: what a micro-batch holds, and which passes it takes besides its own."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.base.sources import Source
from trainledger.facts.colossal import LOW_LEVEL, PAIR_LOSS
from trainledger.facts.losses import TOKEN_LOSS
from trainledger.facts.phases import DISTILL
from trainledger.facts.preference_row import (
    DIVERGENCE,
    LLAMAFACTORY,
    NAMED,
    ON_TRANSFORMERS,
    SWIFT,
    TRL,
    Preference,
    Prepared,
)
from trainledger.facts.preferences_front import FRONT
from trainledger.facts.preferences_trl import DPO, GRPO, KTO, LIKELY
from trainledger.facts.versions import at_least

PAIRED = ("dpo", "orpo", "simpo")  # tasks of which a micro-batch counts pairs
REWARDED = "reward"  # the task whose model has a head of one number, over pairs too
AGAINST = ("dpo", "kto")  # tasks whose loss reads a reference model's log-probabilities
SAMPLED = "grpo"  # the task over sequences that the policy sampled, of which TRL has a trainer
ALONE = ("orpo", "simpo")  # tasks over pairs whose loss reads no reference model
PAIR = ("chosen", "rejected")
GIVEN, AHEAD = "ref_model", "precompute_ref_log_probs"  # options that say that a reference is passed in, and read first
AHEAD_BATCH = "precompute_ref_batch_size"  # the option of how many examples are read at once then

SUFFIX = "use_logits_to_keep"  # the option that has the head make logits of the tokens that count only
TOLD = "4.49"  # the release of Transformers from which models take `logits_to_keep`
LOSSES, WEIGHS = "loss_type", "use_weighting"  # options: names of the losses that are added up; WPO's weights
LIKELIHOOD = "sft"  # the one of these losses that is a cross-entropy of the chosen sequences
CHOSEN_SHARE = ("cpo_alpha", "rpo_alpha")  # options: weights of the chosen sequences' cross-entropy; 0: there is none


def _chat(path: str) -> Source:
    return Source("ColossalChat trainers", f"applications/ColossalChat/coati/trainer/{path}, _train", "0.4.2 (2024-07)")


GKD = Source("TRL GKDTrainer", "trl/experimental/gkd/gkd_trainer.py, compute_loss, generalized_jsd_loss", "1.16.0")
_COLOSSAL = LOW_LEVEL.framework
PREFERENCES: tuple[Preference, ...] = (
    *FRONT,
    *DPO,
    *KTO,
    *LIKELY,
    *GRPO,
    Preference(TRL, "", DISTILL, 0, 0, 3, 0, DIVERGENCE, GKD),
    Preference(_COLOSSAL, "", "dpo", 0, 1, 5, 0, NAMED, _chat("dpo.py")),
    Preference(_COLOSSAL, "", "kto", 1, 2, 6, 0, NAMED, _chat("kto.py")),
    Preference(_COLOSSAL, "", "ppo", 0, 0, 4, 0, NAMED, PAIR_LOSS.source),
    Preference(_COLOSSAL, "", "simpo", 0, 0, 5, 0, NAMED, PAIR_LOSS.source),
    Preference(_COLOSSAL, "", "orpo", 0, 0, 5, 0, NAMED, PAIR_LOSS.source),
)

_PREPARE = Source(
    "Reference models under FSDP",
    "trl/models/utils.py, prepare_fsdp; trl/trainer/{dpo,kto}_trainer.py, __init__; llamafactory/train/dpo/trainer.py; "
    "swift/rlhf_trainers/utils.py, prepare_fsdp; accelerate/accelerator.py, prepare_model (evaluation_mode)",
    "TRL 0.15.2 to 1.16.0; LLaMA-Factory 0.9.3 to 0.9.5; ms-swift 4.6.0",
)
PREPARED: tuple[Prepared, ...] = (
    Prepared(TRL, "dpo", "0.16", "0.29", True, _PREPARE),
    Prepared(TRL, "kto", "1.3", "1.3", True, _PREPARE),
    *(Prepared(LLAMAFACTORY, task, "0.9.4", "0.9.4", False, _PREPARE) for task in AGAINST),
    *(Prepared(SWIFT, task, "", "", False, _PREPARE) for task in AGAINST),
)


def prepared_of(row: Preference) -> Prepared | None:
    """How the trainer of that row prepares a reference model under FSDP; None where its script does that itself."""
    return next((one for one in PREPARED if (one.package, one.task) == (row.package, row.task)), None)


def preference_of(task: str, framework: str, versions: Mapping[str, str]) -> Preference | None:
    """The row of a task that this framework's trainer runs, or that of a package of the environment whose trainers run
    on Transformers (`versions`: releases by package)."""
    for row in PREFERENCES:
        release = versions.get(row.package, "")
        own = row.package in ON_TRANSFORMERS
        here = bool(release) and framework not in TOKEN_LOSS.frameworks
        ours = here and at_least(release, row.since) if own else row.package == framework
        if row.task == task and ours:
            return row
    return None
