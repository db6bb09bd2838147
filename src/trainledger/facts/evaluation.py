"""Evaluation as the Trainer runs it: what it keeps of each batch, how batches are joined, what generation caches."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Loop:
    """The Trainer's loop over a set: logits of a batch are gathered from all data-parallel ranks and joined to those of
    the batches before; while they are joined both are there."""

    source: Source


@dataclass(frozen=True, slots=True)
class Caching:
    """A model that is evaluated makes keys and values for a cache of its own, as its configuration has it, which the
    Trainer turns off from this release of Transformers on."""

    until: str
    source: Source


LOOP = Loop(
    Source(
        "Transformers Trainer, evaluation_loop and EvalLoopContainer",
        "transformers/trainer.py, trainer_pt_utils.py (nested_concat); accelerate/utils/operations.py, _gpu_gather",
        "4.40.2, 5.24.0; 1.15.0",
    )
)
CACHING = Caching(
    "5.0",
    Source(
        "Transformers TrainingArguments.use_cache, which turns config.use_cache off",
        "transformers/training_args.py, trainer.py",
        "4.40.2, 5.24.0",
    ),
)
GENERATION = Source(
    "Transformers DynamicCache and StaticCache: keys and values of each layer are joined with the new token's",
    "transformers/cache_utils.py; generation/utils.py",
    "5.24.0",
)
GATHERED = Source(
    "PyTorch full_tensor and FSDP's full state dict; DeepSpeed _zero3_consolidated_16bit_state_dict",
    "torch/distributed/checkpoint/state_dict.py, fsdp/_state_dict_utils.py; deepspeed/runtime/engine.py",
    "2.13; 0.19.8",
)
FORWARD_ONLY = Source(
    "Megatron-Core pipeline schedules, forward_only; Megatron-LM evaluate",
    "megatron/core/pipeline_parallel/schedules.py; megatron/training/training.py, evaluate",
    "core 0.14 to 0.19.2",
)
