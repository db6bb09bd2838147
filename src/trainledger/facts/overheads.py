"""What a device holds beyond the live tensors, as intervals: none of it follows from the plan alone.

Allocated -> reserved is a ratio at the peak (the caching allocator keeps blocks that it cannot reuse); reserved ->
device is a sum (the process's context, the communicators). Until the allocator is replayed these are assumed, so
every use carries the interval and not only its middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainledger.base.sources import Basis, Source
from trainledger.base.units import GIB, MIB
from trainledger.facts.torch_releases import LOADED_WHOLE

ANY = "any"


@dataclass(frozen=True, slots=True)
class Interval:
    """Low, expected and high of one overhead. `unit` is `ratio` or `B`. Raises ValueError when out of order."""

    low: float
    expected: float
    high: float
    unit: str
    source: Source
    basis: Basis = Basis.ASSUMED

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.expected <= self.high:
            raise ValueError(f"{self.low}, {self.expected}, {self.high}: an interval is low <= expected <= high")


def _ratio(low: float, expected: float, high: float, records: str) -> Interval:
    """The 5th, 50th and 95th percentile of reserved / allocated at the peak over run records."""
    source = Source("run records: 5, 50 and 95 % quantiles of reserved_peak / allocated_peak", records)
    return Interval(low, expected, high, "ratio", source)


SINGLE = "emulated-single, -ddp, -peft, -trainer, -fsdp-nd.jsonl"
# `any` pools what no row of its own covers. Sharded runs keep more: gathers and buckets of other sizes each layer.
# Keys: framework, whether the strategy shards (FSDP, ZeRO, Megatron), whether segments are expandable.
RESERVED: dict[tuple[str, bool, bool], Interval] = {
    ("transformers", False, False): _ratio(1.0228, 1.0906, 1.2552, f"{SINGLE}, 120 rows"),
    ("transformers", False, True): _ratio(1.0081, 1.0371, 1.2030, "emulated-single, -peft.jsonl, 17 rows"),
    ("transformers", True, False): _ratio(1.0673, 1.2856, 1.6023, "emulated-fsdp, -fsdp-nd, -trainer.jsonl, 32 rows"),
    ("transformers", True, True): _ratio(1.0440, 1.1680, 1.2358, "emulated-fsdp.jsonl, 9 rows"),
    ("deepspeed", False, False): _ratio(1.0561, 1.1055, 1.2313, "emulated-deepspeed.jsonl, 6 rows"),
    ("deepspeed", True, False): _ratio(1.1028, 1.2828, 1.5279, "emulated-deepspeed.jsonl, 40 rows"),
    ("megatron", True, False): _ratio(1.0123, 1.0349, 1.0847, "emulated-megatron, measured-simumax.jsonl, 86 rows"),
    (ANY, False, False): _ratio(1.0232, 1.0906, 1.2540, f"{SINGLE}, emulated-deepspeed.jsonl, 126 rows"),
    (ANY, False, True): _ratio(1.0081, 1.0371, 1.2030, "emulated-single, -peft.jsonl, 17 rows"),
    (ANY, True, False): _ratio(1.0154, 1.0670, 1.5018, "all records with both peaks, sharded, 159 rows"),
    (ANY, True, True): _ratio(1.0440, 1.1680, 1.2358, "emulated-fsdp.jsonl, 9 rows"),
}

REPLAYS = Source(
    "run records: least, middle and greatest of allocated, and 5, 50 and 95 % quantiles of reserved, over the replay's",
    "emulated-single, -ddp, -trainer, hf-full.jsonl: 98 rows for allocated, 96 for reserved",
)
SHARDED_REPLAYS = Source(
    "run records: reserved over the replay's, on devices, whose streams are done later than an emulated runtime's: 69 "
    "of 82 rows lie within; all of 84 emulated rows but one, and all of their allocated ones",
    "measured-torchtitan-fsdp, -nd, -deepspeed; emulated-fsdp, -fsdp-nd, -deepspeed.jsonl",
)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What runs measured over what the replay of their ledger's births and deaths said."""

    allocated: Interval
    reserved: Interval


# by whether model states are sharded: collectives run on streams of their own, whose timing a replay does not know
REPLAYED: dict[bool, Replayed] = {
    False: Replayed(
        Interval(0.9998, 1.0, 1.0002, "ratio", REPLAYS, Basis.MEASURED),
        Interval(0.9999, 1.0, 1.0282, "ratio", REPLAYS, Basis.MEASURED),
    ),
    True: Replayed(
        Interval(0.9969, 1.0, 1.0021, "ratio", SHARDED_REPLAYS, Basis.MEASURED),
        Interval(0.9855, 1.0, 1.0442, "ratio", SHARDED_REPLAYS, Basis.MEASURED),
    ),
}

# Frameworks that run another one's allocations: FSDP2 on one allocator, whoever wrote the loop.
RUNS_LIKE: dict[str, str] = {
    "torchtitan": "transformers",
    "torchtune": "transformers",
    "torch": "transformers",
    "litgpt": "transformers",
    "fsdp_qlora": "transformers",
    "trl": "transformers",
    "nemo": "megatron",
    "megatron-bridge": "megatron",
    "megatron-deepspeed": "megatron",
}


def reserved_over_allocated(framework: str, sharded: bool, expandable_segments: bool = False) -> Interval:
    """Reserved over allocated at the peak (ratio >= 1), for a stack's framework; unknown ones get the pooled rows.

    The megatron row stands for unsharded megatron too. `expandable_segments` is the allocator's setting of that name;
    a framework without a row for it gets the pooled one.
    """
    like = RUNS_LIKE.get(framework, framework)
    options = ((like, sharded), ("megatron", True)) if like == "megatron" else ((like, sharded),)
    for name, shards in (*options, (ANY, sharded)):
        found = RESERVED.get((name, shards, expandable_segments))
        if found is not None:
            return found
    return RESERVED[(ANY, sharded, expandable_segments)]


LAZY = Source(
    "about 300 to 400 MB with lazy kernel loading (CUDA 11.7 and later), over 1,000 MB before",
    "github.com/pytorch/pytorch/issues/107667 and 109888",
)
VOLTA = Source(
    "V100: 1,343 MiB in use before the model (2022); Titan V: 1,008 MB; 300 to 400 MB for CUDA alone; lazy since",
    "run records, measured-hf-full.jsonl; github.com/pytorch/pytorch/issues/28394 and 20532",
)
TURING = Source(
    "RTX 2080 Ti: 1,035 MiB with one tensor of 158 MiB (2020); lazy loading since",
    "github.com/pytorch/pytorch/issues/49877 and 107667",
)
AMPERE = Source(
    "RTX 3090: 1,644 MiB with one tensor of 158 MiB (2020), a bare context of 256 MiB in 2026",
    "github.com/pytorch/pytorch/issues/49877, github.com/invoke-ai/InvokeAI/issues/9413",
)
ADA = Source("RTX 6000 Ada: 426 MiB after mem_get_info, torch 2.10", "github.com/unslothai/unsloth-zoo/pull/1053")


def _mebibytes(low: int, expected: int, high: int, source: Source) -> Interval:
    return Interval(low * MIB, expected * MIB, high * MIB, "B", source)


# The low end is a bare context, the high end one with every kernel of the library loaded. The expected value is that of
# lazy loading, with the kernels of a training step on top; releases that load all expect the high end.
CONTEXT: dict[str, Interval] = {
    "sm60": _mebibytes(286, 420, 1343, VOLTA),
    "sm70": _mebibytes(286, 420, 1343, VOLTA),
    "sm75": _mebibytes(286, 420, 877, TURING),
    "sm80": _mebibytes(256, 450, 1486, AMPERE),
    "sm86": _mebibytes(256, 450, 1486, AMPERE),
    "sm89": _mebibytes(286, 450, 1434, ADA),
    ANY: _mebibytes(256, 500, 1434, LAZY),
}


def context(architecture: str, torch: str = "") -> Interval:
    """Bytes of the process's own context on the device (driver structures, loaded kernels), outside the allocator;
    `torch`: the release of PyTorch (empty: the newest)."""
    row = CONTEXT.get(architecture, CONTEXT[ANY])
    return replace(row, expected=row.high) if LOADED_WHOLE.holds(torch) else row


# By kernel set: what its libraries add to a process's context (compiled attention, products' kernels, local memory).
LIBRARIES: dict[str, Interval] = {
    "te": _mebibytes(
        0, 1688, 2536,
        Source(
            "NeMo on 8 B200: nvidia-smi 124,905 to 125,170 MiB beside 121,866 MiB reserved, less a context and two "
            "communicators (500 and 984 MiB expected; 256 and 512 at least, all of it at most)",
            "run record mlog-nemo-llama3-8b-b200-bf16, measured-megatron-dense.jsonl",
        ),
    ),
}  # fmt: skip


def libraries(kernels: Iterable[str]) -> tuple[Interval, ...]:
    """What the libraries of kernel sets hold on the device besides the bare context."""
    return tuple(LIBRARIES[name] for name in kernels if name in LIBRARIES)


NCCL = Source(
    "A100, NVLink: 544 MB for a group of two, 688 MB for a larger one; 1.6 GB for a first communicator elsewhere",
    "github.com/NVIDIA/nccl/issues/964 and 864",
)
NCCL_MORE = Source(
    "0 where a communicator shares its parent's buffers, 688 MB where not; 6 GB for three or more in one report",
    "NCCL user guide, ncclConfig_t splitShare; github.com/NVIDIA/nccl/issues/964 and 864",
)
NCCL_NONE = Source("one rank has no communicator", "by definition")
COMMUNICATOR_FIRST = _mebibytes(512, 656, 1526, NCCL)
# 6 GB less 1.6 GB over two further ones.
COMMUNICATOR_NEXT = _mebibytes(0, 328, 2098, NCCL_MORE)
COMMUNICATORS_MOST = 6 * GIB


def communicators(world: int, groups: int = 1) -> Interval:
    """Bytes of NCCL's buffers on a rank that belongs to that many communicators of more than one rank.

    Zero when `world` is 1 or `groups` 0. The high end stops at the most that was ever reported (6 GB).
    """
    if world <= 1 or groups <= 0:
        return Interval(0, 0, 0, "B", NCCL_NONE, Basis.COUNTED)
    first, more = COMMUNICATOR_FIRST, COMMUNICATOR_NEXT
    extra = groups - 1
    high = max(first.high, min(first.high + extra * more.high, COMMUNICATORS_MOST))
    expected = min(first.expected + extra * more.expected, high)
    return Interval(first.low + extra * more.low, expected, high, "B", more.source if extra else first.source)


NCCL_PEERS = Source(
    "8 H100, NVLink: 1.06 GB before the first all-to-all and 4.34 GB after it, 32 channels for each of 7 peers with "
    "buffers of 10 and 2 MiB; 1 or 2 channels for each peer where some are on other nodes",
    "github.com/NVIDIA/nccl/issues/1685 and 1189; nccl/src/graph/paths.cc, ncclTopoComputeP2pChannels; "
    "src/transport/p2p.cc, p2pSendSetup, p2pRecvSetup (2.18 to 2.26)",
)
NVLINKED = ("sm80", "sm90", "sm100", "sm103")
# 3.28 GB over seven peers; least: two channels of 12 MiB
PEER = _mebibytes(24, 480, 480, NCCL_PEERS)
PEER_OF_NODES = _mebibytes(12, 24, 48, NCCL_PEERS)  # one, two, or as many as two network cards of a device ask for


def peers(architecture: str, within: int, across: int) -> tuple[Interval, ...]:
    """Bytes of NCCL's buffers on a rank that sends to so many peers, besides those of its communicators' rings: peers
    of communicators that lie `within` a node, and of those `across` nodes."""
    near = PEER if architecture in NVLINKED else PEER_OF_NODES
    counted = ((near, within), (PEER_OF_NODES, across))
    return tuple(
        Interval(one.low * count, one.expected * count, one.high * count, "B", one.source)
        for one, count in counted
        if count
    )
