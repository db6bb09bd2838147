"""The settings of PyTorch's caching allocator: their names in PYTORCH_CUDA_ALLOC_CONF, values and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.base.units import GIB, MIB


class Value(StrEnum):
    """What a setting takes, in the words of a message."""

    BOOL = "True or False"
    MEBIBYTES = "a whole number of MiB"
    FRACTION = "a number above 0 and below 1"
    SHARE = "a number between 0 and 1"
    COUNT = "a whole number"
    POWER = "a power of 2"
    DIVISIONS = "a power of 2, or a list such as [256:1,512:2,>:4] of a size in MiB and a power of 2 (0 for none)"
    BACKEND = "native or cudaMallocAsync"


class Moves(StrEnum):
    """Which memory a setting moves: the device's, which the replay counts, sizes of page-locked tensors, the host's
    pinned caches otherwise, or none."""

    DEVICE = "device"
    PINNED = "pinned"
    HOST = "host"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, and what it moves; `least` and `most` bound a number (0 and None: no bound)."""

    name: str
    value: Value
    moves: Moves
    source: Source
    least: int = 0
    most: int | None = None


CONFIG = Source("PyTorch c10/core/AllocatorConfig.cpp", "AcceleratorAllocatorConfig::parseArgs", "v2.4 to 2.13")
CUDA_CONFIG = Source("PyTorch c10/cuda/CUDAAllocatorConfig.cpp", "CUDAAllocatorConfig::parseArgs", "v2.4 to 2.13")

SETTINGS: dict[str, Setting] = {
    row.name: row
    for row in (
        Setting("expandable_segments", Value.BOOL, Moves.DEVICE, CONFIG),
        Setting("max_split_size_mb", Value.MEBIBYTES, Moves.DEVICE, CONFIG, 20),
        Setting("max_non_split_rounding_mb", Value.MEBIBYTES, Moves.DEVICE, CONFIG, 20),
        Setting("large_segment_size_mb", Value.MEBIBYTES, Moves.DEVICE, CONFIG, 11),
        Setting("roundup_power2_divisions", Value.DIVISIONS, Moves.DEVICE, CONFIG),
        Setting("garbage_collection_threshold", Value.FRACTION, Moves.DEVICE, CONFIG),
        Setting("per_process_memory_fraction", Value.SHARE, Moves.DEVICE, CUDA_CONFIG),
        Setting("backend", Value.BACKEND, Moves.DEVICE, CUDA_CONFIG),
        Setting("release_lock_on_cudamalloc", Value.BOOL, Moves.NOTHING, CUDA_CONFIG),
        Setting("release_lock_on_hipmalloc", Value.BOOL, Moves.NOTHING, CUDA_CONFIG),
        Setting("graph_capture_record_stream_reuse", Value.BOOL, Moves.NOTHING, CUDA_CONFIG),
        Setting("throw_on_cudamalloc_oom", Value.BOOL, Moves.NOTHING, CUDA_CONFIG),
        Setting("pinned_use_cuda_host_register", Value.BOOL, Moves.HOST, CUDA_CONFIG),
        Setting("pinned_use_hip_host_register", Value.BOOL, Moves.HOST, CUDA_CONFIG),
        Setting("pinned_use_background_threads", Value.BOOL, Moves.HOST, CONFIG),
        Setting("pinned_num_register_threads", Value.POWER, Moves.HOST, CUDA_CONFIG, 1, 128),
        Setting("pinned_reserve_segment_size_mb", Value.MEBIBYTES, Moves.HOST, CUDA_CONFIG, 1),
        Setting("pinned_max_round_threshold_mb", Value.MEBIBYTES, Moves.PINNED, CONFIG),
        Setting("pinned_max_cached_size_mb", Value.MEBIBYTES, Moves.PINNED, CONFIG),
        Setting("pinned_free_catch_all", Value.BOOL, Moves.HOST, CUDA_CONFIG),
    )
}


@dataclass(frozen=True, slots=True)
class Intervals:
    """roundup_power2_divisions by size: one number of divisions per power of two from `first` bytes, `count` of them.

    Smaller sizes take the first, larger ones the last.
    """

    first: int
    count: int
    unit: int
    source: Source


INTERVALS = Intervals(MIB, 16, MIB, CONFIG)
# A page-locked tensor above the smaller of these is not rounded up to a power of two; unset, every one is.
PINNED = tuple(SETTINGS[name] for name in ("pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"))
# The environment variables that hold these settings; the first that is set wins.
ALLOCATOR_TEXTS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
BACKENDS = ("native", "cudaMallocAsync", "hipMallocAsync")
NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Addresses:
    """How the simulator lays out addresses: `first` is that of the first segment, `range` the bytes of an expandable
    range where the device's total is not known (else the total and one part in `spare` more), `bits` the width of an
    address in a sort key (size above, address below).

    Only their order counts: it breaks ties between free blocks of the same size.
    """

    first: int
    range: int
    spare: int
    bits: int
    source: Source


ADDRESSES = Addresses(
    2 * MIB,
    2**10 * GIB,
    8,
    64,
    Source("PyTorch c10/cuda/CUDACachingAllocator.cpp", "BlockComparatorSize, find_expandable_block", "v2.13"),
)


@dataclass(frozen=True, slots=True)
class Search:
    """The search for the smallest capacity stops at `step` bytes: segments are multiples of it."""

    step: int
    source: Source


SEARCH = Search(2 * MIB, Source("PyTorch c10/cuda/CUDACachingAllocator.cpp", "kSmallBuffer, kRoundLarge", "v2.13"))


@dataclass(frozen=True, slots=True)
class ReplayBound:
    """An estimate replays no more than this many `events`, and bisects a capacity to `step` bytes."""

    events: int
    step: int
    source: Source


REPLAY = ReplayBound(
    4_000_000, 64 * MIB, Source("this program's own bound: about four seconds of replay", "bench/bench_allocator.py")
)


@dataclass(frozen=True, slots=True)
class RecallBound:
    """A replay keeps the states of a pool's free blocks while their number stays below `worth` for each step that was
    looked up and not run, and `lost` more."""

    worth: int
    lost: int
    source: Source


RECALL = RecallBound(
    8,
    250_000,
    Source("this program's own bound: a step takes as long as eight blocks of a state", "bench/bench_allocator.py"),
)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Architectures (by how their names begin) whose builds of PyTorch have no expandable segments: the setting is
    taken with a warning and does nothing."""

    architectures: tuple[str, ...]
    source: Source


FIXED = Fixed(
    ("gfx",),
    Source(
        "PyTorch c10/cuda/CUDACachingAllocator.cpp",
        "PYTORCH_C10_DRIVER_API_SUPPORTED, which ROCm's build lacks",
        "v2.4 to v2.9",
    ),
)
