"""What the Transformers Trainer holds of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


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


@dataclass(frozen=True, slots=True)
class Noise:
    """The option whose number has noise added to the rows of the word embedding in training, and where it counts."""

    option: str
    frameworks: tuple[str, ...]
    source: Source


NOISE = Noise(
    "neftune_noise_alpha",
    ("transformers",),
    Source(
        "Transformers Trainer, NEFTune",
        "transformers/integrations/neftune.py, neftune_post_forward_hook; trainer_utils.py",
        "4.40.2, 5.24.0",
    ),
)
