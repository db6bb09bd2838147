"""What the Transformers Trainer holds of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class TrainerBatch:
    """Tensors of a micro-batch that a collator for language models makes; since `ahead`, those of all micro-batches of
    a step are on the device before the first runs. `package` is in the versions of a run by the Trainer."""

    tensors: tuple[str, ...]
    ahead: str
    package: str
    source: Source


TRAINER_BATCH = TrainerBatch(
    ("input_ids", "attention_mask", "labels"),
    "4.46",
    "accelerate",
    Source(
        "Transformers Trainer", "transformers/trainer.py, get_batch_samples; data/data_collator.py", "4.48.1, 5.24.0"
    ),
)


@dataclass(frozen=True, slots=True)
class Outputs:
    """The `package` that casts the results of a forward under autocast to fp32."""

    package: str
    source: Source


OUTPUTS = Outputs(
    "accelerate",
    Source("Accelerate prepare_model", "accelerate/utils/operations.py, ConvertOutputsToFp32", "0.34.2, 1.0.1"),
)


@dataclass(frozen=True, slots=True)
class KeptCaches:
    """Families whose forward, while it recomputes, keeps each layer's cache for decoding to its end: the result of
    `module`, of which the cache is a view. Until this release."""

    families: tuple[str, ...]
    module: str
    until: str
    source: Source

    def keeps(self, family: str, transformers: str) -> bool:
        """Whether a family's forward does, in this release of Transformers (an unknown one counts as the newest)."""
        return family in self.families and bool(transformers) and not at_least(transformers, self.until)


KEPT_CACHES = KeptCaches(
    ("gpt_bigcode",),
    "attn.c_attn",
    "5.0",
    Source(
        "Transformers GPTBigCode", "transformers/models/gpt_bigcode/modeling_gpt_bigcode.py, presents", "4.48.1, 5.24.0"
    ),
)


@dataclass(frozen=True, slots=True)
class WideStates:
    """Weights by their `roles` whose states the Trainer keeps out of bitsandbytes' codes: those of embeddings."""

    roles: tuple[str, ...]
    source: Source


WIDE_STATES = WideStates(
    ("embedding", "position"),
    Source("Transformers Trainer", "transformers/trainer.py, create_optimizer: register_module_override", "5.24.0"),
)


@dataclass(frozen=True, slots=True)
class DecayGroups:
    """The Trainer's group without weight decay holds every bias and every norm's weight; before the release `since` it
    told norms by their class, and did not know those of `unknown` families."""

    since: str
    unknown: frozenset[str]
    source: Source


DECAY_GROUPS = DecayGroups(
    "4.50",
    frozenset("mistral mixtral qwen2 qwen2_moe gemma gemma2 phi3 glm granite".split()),
    Source("Transformers Trainer", "transformers/trainer.py, get_decay_parameter_names", "4.45.2 to 5.24.0"),
)
