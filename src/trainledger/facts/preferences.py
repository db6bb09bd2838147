"""How trainers compute losses over preferences: what a micro-batch holds, and which passes it takes besides its own."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.colossal import LOW_LEVEL, PAIR_LOSS
from trainledger.facts.phases import DISTILL
from trainledger.facts.versions import at_least

PAIRED = ("dpo", "orpo", "simpo")  # tasks of which a micro-batch counts pairs
REWARDED = "reward"  # the task whose model has a head of one number, over pairs too
AGAINST = ("dpo", "kto")  # tasks whose loss reads a reference model's log-probabilities
PAIR = ("chosen", "rejected")
TRL = "trl"
# how a loss is made: by a fused head; of named logits; of rows of logits one by one; by a kernel; of a teacher's logits
FUSED, NAMED, SELECTIVE, KERNEL, DIVERGENCE = "fused", "named", "selective", "kernel", "divergence"
GIVEN, AHEAD = "ref_model", "precompute_ref_log_probs"  # options that say that a reference is passed in, and read first


@dataclass(frozen=True, slots=True)
class Preference:
    """A trainer's micro-batch of a task, from a release of its package on.

    Forward passes without gradients beside the one that is trained: sequences of the policy `before` it and of the
    reference model `after` it. `tensors`: of tokens that a micro-batch has; `results`: numbers of each token that a
    fused head hands on (0: it is not fused); `form`: how the loss is made.
    """

    package: str
    since: str
    task: str
    before: int
    after: int
    tensors: int
    results: int
    form: str
    source: Source

    @property
    def names(self) -> bool:
        """Whether the script's names keep logits until the next micro-batch's take their place, as a plain loop's do;
        a Trainer's end before backward. Such scripts bring a reference of their own, whatever is trained, too."""
        return self.package != TRL


def _trl(path: str, release: str = "1.16.0") -> Source:
    note = "trl/trainer/utils.py, add_fused_lm_head; trl/models/utils.py, prepare_deepspeed, prepare_fsdp"
    return Source(
        "TRL trainers", f"trl/trainer/{path}, __init__, _compute_loss, compute_ref_log_probs; {note}", release
    )


def _chat(path: str) -> Source:
    return Source("ColossalChat trainers", f"applications/ColossalChat/coati/trainer/{path}, _train", "0.4.2 (2024-07)")


GKD = Source("TRL GKDTrainer", "trl/experimental/gkd/gkd_trainer.py, compute_loss, generalized_jsd_loss", "1.16.0")
_COLOSSAL = LOW_LEVEL.framework
PREFERENCES: tuple[Preference, ...] = (
    Preference(TRL, "1.15", "dpo", 0, 1, 3, 4, FUSED, _trl("dpo_trainer.py")),
    Preference(TRL, "1.15", "kto", 1, 2, 6, 3, FUSED, _trl("kto_trainer.py")),
    Preference(TRL, "1.14", "dpo", 0, 1, 3, 0, KERNEL, _trl("dpo_trainer.py", "1.14.0")),
    Preference(TRL, "1.6", "dpo", 0, 1, 3, 0, SELECTIVE, _trl("dpo_trainer.py", "1.6.0 to 1.13.0")),
    Preference(TRL, "1.15", "grpo", 0, 0, 3, 2, FUSED, _trl("grpo_trainer.py")),
    Preference(TRL, "", DISTILL, 0, 0, 3, 0, DIVERGENCE, GKD),
    Preference(_COLOSSAL, "", "dpo", 0, 1, 5, 0, NAMED, _chat("dpo.py")),
    Preference(_COLOSSAL, "", "kto", 1, 2, 6, 0, NAMED, _chat("kto.py")),
    Preference(_COLOSSAL, "", "simpo", 0, 0, 5, 0, NAMED, PAIR_LOSS.source),
    Preference(_COLOSSAL, "", "orpo", 0, 0, 5, 0, NAMED, PAIR_LOSS.source),
)


def preference_of(task: str, framework: str, release: str) -> Preference | None:
    """The row of a task that this framework's trainer, or TRL of this release (empty: no TRL), runs."""
    for row in PREFERENCES:
        ours = row.package == framework if row.package != TRL else bool(release) and at_least(release, row.since)
        if row.task == task and ours:
            return row
    return None
