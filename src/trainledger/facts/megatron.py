"""Megatron-Core: names, sources, and numbers of its own code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source

NAME = "megatron"
FAMILY = "megatron-gpt"
BRIDGED = "megatron-bridge"
FRAMEWORKS = (NAME, BRIDGED, "nemo")  # what runs Megatron-Core
WRAPPED = "megatron-deepspeed"  # Megatron's layers under DeepSpeed's wrappers of the optimizer
STRATEGIES = ("megatron-ddp", "megatron-distopt", "megatron-fsdp")
LOSSES = ("vocab-parallel", "vocab-parallel-fused", "vocab-parallel-te")

LAYERS = Source(
    "Megatron-Core: layers as their forward is written",
    "megatron/core/transformer/{transformer_layer,attention,mlp,dot_product_attention}.py, tensor_parallel/layers.py",
    "0.19.2",
)
LOSS = Source(
    "Megatron-Core: vocabulary-parallel cross entropy",
    "megatron/core/tensor_parallel/cross_entropy.py, fusions/fused_cross_entropy.py",
    "0.19.2",
)
BUFFER = Source("Megatron-Core: the global memory buffer", "megatron/core/utils.py, GlobalMemoryBuffer", "0.19.2")
ROTARY = Source(
    "Megatron-Core: rotary angles, made once a length; each chunk has its own, each layer of latent attention",
    "megatron/core/models/common/embeddings/rotary_pos_embedding.py; transformer/multi_latent_attention.py",
    "0.14, 0.19.2",
)
ROTARY_KEPT = 32  # tables that the cache of that function holds, over all modules
CHECKPOINT = Source("Megatron-Core: activation recomputation", "megatron/core/tensor_parallel/random.py", "0.19.2")
SCHEDULES = Source(
    "Megatron-Core: pipeline schedules", "megatron/core/pipeline_parallel/{schedules,p2p_communication}.py", "0.19.2"
)
OPTIMIZER = Source(
    "Megatron-Core: the distributed optimizer and Float16Optimizer",
    "megatron/core/optimizer/{distrib_optimizer,optimizer}.py",
    "0.19.2",
)


@dataclass(frozen=True, slots=True)
class FusedSoftmax:
    """The kernel that masks, scales and takes the softmax: key lengths above `shortest` and up to `longest`, multiples
    of `multiple`, in 16 bits; heads x sequences a multiple of `at_once`, or of `at_once_of_few` up to `few` keys."""

    shortest: int
    longest: int
    multiple: int
    at_once: int
    few: int
    at_once_of_few: int
    source: Source


SOFTMAX = FusedSoftmax(
    16, 4096, 4, 4, 128, 8,
    Source(
        "Megatron-Core: fused softmax",
        "megatron/core/fusions/fused_softmax.py, is_kernel_available; megatron/fused_kernels/scaled_masked_softmax.h, "
        "get_batch_per_block",
        "0.19.2; 23.01",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Qkv:
    """A group of the fused projection: its query heads and `others` (a key head and a value head). From `listed` on
    attention names its parts together, so that all stay until it returns."""

    others: int
    listed: str
    source: Source


QKV = Qkv(
    2,
    "0.15",
    Source(
        "Megatron-Core: the fused projection's parts",
        "megatron/core/transformer/attention.py, SelfAttention.get_query_key_value_tensors and Attention.forward, "
        "qkv_output",
        "0.14.0 and 0.15.0",
    ),
)


@dataclass(frozen=True, slots=True)
class Settled:
    """After how many rounds of micro-batches over all ranks a pipeline repeats itself; how many more steps after the
    second one are replayed, for blocks that the allocator takes as steps follow each other."""

    rounds: int
    steps: int
    source: Source


SETTLED = Settled(3, 3, SCHEDULES)  # warm-up is at most two rounds long


@dataclass(frozen=True, slots=True)
class Report:
    """What is reported of a micro-batch's loss: so many fp32 numbers, its sum and the count of its tokens."""

    numbers: int
    source: Source


REPORT = Report(
    2,
    Source(
        "Megatron-Core: what is reported of a loss",
        "megatron/core/pipeline_parallel/schedules.py, forward_data_store; pretrain_gpt.py, loss_func",
        "0.19.0",
    ),
)


@dataclass(frozen=True, slots=True)
class Sharded:
    """What each data-parallel rank has only its part of: weights, gradients, master weights and optimizer states."""

    weights: bool
    gradients: bool
    states: bool


@dataclass(frozen=True, slots=True)
class MegatronFsdp:
    """Megatron-FSDP: the plan's word for it; the option that says what is sharded, its default and its values; the one
    that says what is over groups of ranks besides, and what of it can be estimated; the dtype of the weights that the
    optimizer updates, unless an option says another (`auto`: there are none besides the model's)."""

    strategy: str
    option: str
    sharding: str
    shardings: Mapping[str, Sharded]
    outer: str
    outer_known: tuple[str, ...]
    main: str
    main_option: str
    source: Source


FSDP = MegatronFsdp(
    "megatron-fsdp",
    "data_parallel_sharding_strategy",
    "optim_grads_params",
    {
        "no_shard": Sharded(False, False, False),
        "optim": Sharded(False, False, True),
        "optim_grads": Sharded(False, True, True),
        "optim_grads_params": Sharded(True, True, True),
    },
    "outer_dp_sharding_strategy",
    ("optim", "no_shard"),
    "fp32",
    "megatron_fsdp_main_params_dtype",
    Source(
        "Megatron-FSDP: sharded states, gathered unit by unit",
        "megatron/core/distributed/fsdp/src/megatron_fsdp/{megatron_fsdp,param_and_grad_buffer}.py",
        "2026-08",
    ),
)


@dataclass(frozen=True, slots=True)
class LayerWise:
    """Optimizers of matrices whose distributed form is layer-wise, under the plan's strategy of that word; the option
    that says whether buffers are laid out for it, and what holds without; roles of weights that such an optimizer hands
    to another though they are matrices."""

    optimizers: tuple[str, ...]
    strategy: str
    option: str
    laid_out: bool
    others: tuple[str, ...]
    source: Source


LAYER_WISE = LayerWise(
    ("muon",), "megatron-distopt", "use_layer_wise_param_layout", True, ("embedding", "head"),
    Source(
        "Megatron-Core: optimizers of matrices",
        "megatron/core/optimizer/{__init__,layer_wise_optimizer,emerging_optimizers}.py; training/arguments.py, "
        "--no-use-layer-wise-param-layout",
        "2026-08",
    ),
)  # fmt: skip
