"""How frameworks nest the axes of their ranks: which axis varies fastest from one rank to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source

TP, CP, DP, PP = "tp", "cp", "dp", "pp"
SHARD, REPLICATE = "dp_shard", "dp_replicate"
EP, ETP, EDP = "ep", "etp", "edp"


@dataclass(frozen=True, slots=True)
class Nesting:
    """Axes from the fastest-varying to the slowest: of dense layers, and of experts.

    `whole_experts`: whether etp left out is 1 (where ep is above 1); else it is tp.
    """

    dense: tuple[str, ...]
    experts: tuple[str, ...]
    whole_experts: bool
    source: Source


_STATE = "megatron/core/parallel_state.py, RankGenerator, initialize_model_parallel"
MEGATRON = Nesting(
    (TP, CP, DP, PP), (ETP, EP, EDP, PP), False, Source("Megatron-Core rank order", _STATE, "core 0.14 to 0.19.2")
)
MEGATRON_PP_FIRST = Nesting(
    (TP, CP, PP, DP),
    (ETP, EP, PP, EDP),
    False,
    Source(
        "Megatron-Core rank order under use_tp_pp_dp_mapping",
        f"{_STATE}; megatron/training/initialize.py",
        "core 0.14 to 0.19.2",
    ),
)
TITAN = Nesting(
    (TP, CP, SHARD, REPLICATE, PP),
    (ETP, EP, EDP, REPLICATE, PP),
    True,
    Source(
        "torchtitan device meshes", "torchtitan/distributed/parallel_dims.py, build_mesh", "aeb3a4b, 2025-08 to b5bcd76"
    ),
)
DEEPSPEED = Nesting(
    (TP, CP, DP, PP),
    (ETP, EP, EDP, PP),
    False,
    Source("DeepSpeed process topology", "deepspeed/runtime/pipe/topology.py, PipeModelDataParallelTopology", "0.19.8"),
)
NESTINGS: Mapping[str, Nesting] = {
    "megatron": MEGATRON,
    "nemo": MEGATRON,
    "megatron-bridge": MEGATRON,
    "megatron-deepspeed": DEEPSPEED,
    "deepspeed": DEEPSPEED,
}
PP_FIRST_OPTION = "use_tp_pp_dp_mapping"


@dataclass(frozen=True, slots=True)
class Zigzag:
    """Context parallelism cuts a sequence into this many pieces per rank, so that causal work is even."""

    pieces: int
    source: Source


ZIGZAG = Zigzag(
    2,
    Source(
        "Sequence length under context parallelism",
        "megatron/training/arguments.py, validate_args; torchtitan/distributed/parallel_dims.py, seq_len_divisor",
        "2026-08",
    ),
)


@dataclass(frozen=True, slots=True)
class HeadExchange:
    """Values of cp_comm_type under which context-parallel ranks exchange heads, which they must then divide."""

    names: tuple[str, ...]
    source: Source


HEAD_EXCHANGE = HeadExchange(
    ("a2a", "ulysses"),
    Source(
        "Transformer Engine context parallelism by all-to-all",
        "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, flash_attn_a2a_communicate",
        "main, 2026-08",
    ),
)


@dataclass(frozen=True, slots=True)
class Node:
    """Ranks of one node, where a plan does not say."""

    ranks: int
    source: Source


NODE = Node(8, Source("NVIDIA HGX and DGX A100, H100, H200, B200", "eight GPUs on one NVSwitch", "2020 to 2025"))
