"""Megatron-Core: the numbers of its flat buffers, and the releases from which buffers and optimizers act otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.deepspeed import Since

PACKAGES = ("megatron-core", "megatron", "megatron-lm")  # what a plan's versions may call it, best first
BRANCHES = ("core_r", "core_v")  # how its release branches and tags begin
BUFFER_FILE = "megatron/core/distributed/param_and_grad_buffer.py"
LAYOUT_FILES = f"{BUFFER_FILE}, megatron/core/optimizer/{{param_layout,distrib_optimizer}}.py"
RELEASES = "core_v0.8.0 to core_v0.19.0"


@dataclass(frozen=True, slots=True)
class Alignment:
    """Under the distributed optimizer each parameter begins at a multiple of `start` elements of its buffer, and each
    bucket ends at one of `end` (of `fast_end` too, where buckets are padded for NCCL) and of the ranks that shard."""

    start: int
    end: int
    fast_end: int
    source: Source


ALIGNMENT = Alignment(64, 128, 2**16, Source("Megatron-Core, padding of the buffers", LAYOUT_FILES, RELEASES))


@dataclass(frozen=True, slots=True)
class DefaultBucket:
    """Elements at which a bucket is full: at least `least`, and `per_rank` for each data-parallel rank."""

    least: int
    per_rank: int
    source: Source

    def elements(self, ranks: int) -> int:
        """The default of a group of so many ranks."""
        return max(self.least, self.per_rank * ranks)


BUCKET = DefaultBucket(
    40_000_000,
    1_000_000,
    Source(
        "Megatron-Core DistributedDataParallel, bucket_size",
        "megatron/core/distributed/distributed_data_parallel.py; megatron/training/training.py, get_model",
        RELEASES,
    ),
)


def _since(release: str, what: str, path: str = BUFFER_FILE) -> Since:
    return Since(release, what, Source(f"Megatron-Core, {what}", path, f"core_v{release}.0"))


PADDED_FIRST = _since("0.9", "a shared embedding's start padded only where the ranks do not divide it")
SPLIT_AFTER = _since("0.13", "a shared embedding begins where the bucket before it ends")
QUANTISED = _since("0.9", "fp8 weights in a buffer of bytes")
SHARED_WITH_GRADIENTS = _since("0.13", "mxfp8 weights are gathered in the gradients' buffer")
FAST_BUCKETS = _since(
    "0.12", "buckets padded for NCCL", "megatron/core/distributed/distributed_data_parallel_config.py"
)
INSTANCES = _since("0.10", "several instances of the distributed optimizer", "megatron/core/parallel_state.py")
PROMOTED = _since("0.17", "gradients of chosen parameters added up in fp32")
OTHER_TENSOR_RANKS = _since(
    "0.19",
    "experts of another tensor parallelism in a buffer of their own",
    "megatron/core/tensor_parallel/layers.py, megatron/core/extensions/transformer_engine.py (allreduce)",
)
TRAINING = "megatron/training/training.py"
COUNTS_CONTEXT = _since("0.12", "the default bucket counts context-parallel ranks", TRAINING)
GATHERS_AT_STEP = _since("0.9", "no buckets where weights are gathered with the optimizer's step", TRAINING)
LAID_OUT_AHEAD = _since("0.18", "buffers laid out before they are wrapped, dense and expert in one order", TRAINING)
LAID_OUT_BY_INSTANCE = _since("0.19", "buffers padded for the ranks of one instance", TRAINING)
FURTHER_RENAMED = _since(
    "0.17", "another name for the layer within a layer that predicts a further token",
    "megatron/core/transformer/multi_token_prediction.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FurtherLayer:
    """What a layer that predicts a further token has beside the layer inside it, and how that one is called: before it
    was renamed, and since."""

    own: tuple[str, ...]
    before: str
    since: str
    source: Source

    def inner(self, release: str) -> str:
        """The layer's name in this release."""
        return self.since if FURTHER_RENAMED.holds(release) else self.before


FURTHER = FurtherLayer(
    ("enorm.", "hnorm.", "eh_proj.", "final_layernorm."),
    "transformer_layer.",
    "mtp_model_layer.",
    Source(
        "Megatron-Core MultiTokenPredictionLayer",
        "megatron/core/transformer/multi_token_prediction.py",
        "core_v0.12.0 to core_v0.19.0",
    ),
)
PACKED_BY_COST = _since(
    "0.20",
    "whole parameters packed by their cost, buckets filled up",
    "megatron/core/optimizer/layer_wise_optimizer.py",
)


@dataclass(frozen=True, slots=True)
class Packing:
    """How whole parameters are packed: a bucket of `filled` times what its largest parameter makes of it is full; a
    shard takes up to `overfull` times its equal part, where one is left that does."""

    filled: float
    overfull: float
    source: Source


PACKING = Packing(
    0.9, 1.3,
    Source(
        "Megatron-Core LayerWiseDistributedOptimizer, _compute_per_buffer_param_layout (PADDING_FLOOR, _NUMEL_EPSILON)",
        "megatron/core/optimizer/layer_wise_optimizer.py",
        "core_v0.18.0 to main of 2026-08",
    ),
)  # fmt: skip
STANDS_IN = _since(
    "0.14", "one stand-in for the output layer's gradient, kept", "megatron/core/tensor_parallel/layers.py"
)
FIXED_ROUTES = _since("0.15", "deterministic routes of tokens", "megatron/core/transformer/moe/moe_utils.py")
OPTIMIZER_FILES = "megatron/core/optimizer/{__init__,distrib_optimizer,optimizer_config}.py"
AWARE = _since("0.11", "a precision-aware optimizer", OPTIMIZER_FILES)
AWARE_BY_RECIPE = _since("0.13", "master weights of fp8 recipes outside the precision-aware optimizer", OPTIMIZER_FILES)


def _engine(release: str, what: str) -> Since:
    where = "transformer_engine/pytorch/optimizers/fused_adam.py"
    return Since(release, what, Source(f"Transformer Engine FusedAdam, {what}", where, f"v{release}"))


REMAINDERS = _engine("2.1", "master weights kept as 16-bit remainders")
BF16_MOMENTS = _engine("2.3", "moments in bf16")
FUSED_RAISING = _engine("2.13", "moments in bf16 updated without copies in fp32")


@dataclass(frozen=True, slots=True)
class FusedAdam:
    """Dtypes that Transformer Engine's FusedAdam keeps master weights and moments in (fp8 moments left out: their
    quantizer's own tensors change by release), and fp8 recipes under which it keeps the master weights itself."""

    masters: tuple[str, ...]
    moments: tuple[str, ...]
    recipes: tuple[str, ...]
    source: Source


FUSED_ADAM = FusedAdam(
    ("fp32", "fp16"),
    ("fp32", "fp16", "bf16"),
    ("", "delayed"),
    Source("Transformer Engine FusedAdam", "transformer_engine/pytorch/optimizers/fused_adam.py", "v1.13 to v2.18"),
)


def release_of(versions: Mapping[str, str]) -> str:
    """Megatron-Core's release in a plan's versions: 0.14.0 of `core_r0.14.0`; empty where none is named."""
    given = next((versions[name] for name in PACKAGES if name in versions), "")
    for start in BRANCHES:
        given = given.removeprefix(start)
    return given
