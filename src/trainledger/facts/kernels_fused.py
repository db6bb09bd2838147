"""Fused attention kernels: how sizes are rounded, their random state, and the tiles of the memory-efficient one."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.kernels_attention import Kernel


@dataclass(frozen=True, slots=True)
class Flash:
    """The flash kernel. Backward rounds rows up to `rows`, and head dims to `step`, or above `wide` to `wide_step` from
    torch `since` on, and in the flash-attn package (from its 2.7; older ones are not told apart). A head dim that is
    no multiple of `pad` is padded."""

    rows: int
    step: int
    wide: int
    wide_step: int
    since: str
    pad: int
    source: Source


FLASH = Flash(
    128, 32, 128, 64, "2.7", 8,
    Source(
        "PyTorch aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp", "mha_bwd; pull request 146372",
        "v2.4 to v2.13",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FlashSplits:
    """How the flash kernel's forward without dropout shares keys among blocks where there are too few for the device:
    keys of one piece by the largest head dim, queries of one block, blocks that a multiprocessor counts for, the share
    of these that is full enough, the share of the best use that is good enough, and the most pieces."""

    keys: tuple[tuple[float, int], ...]
    queries: int
    blocks: int
    full: float
    good: float
    most: int
    source: Source


FLASH_SPLITS = FlashSplits(
    ((64, 256), (128, 128), (float("inf"), 64)), 64, 2, 0.8, 0.85, 128,
    Source(
        "PyTorch flash_api.cpp, splits",
        "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, set_params_splitkv, num_splits_heuristic",
        "v2.4 to v2.13",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RandomState:
    """The random state that a kernel returns on the device, each part in an int64 tensor: elements of each, from a
    release on. `first`: made before the output."""

    kernel: Kernel
    since: str
    parts: tuple[int, ...]
    first: bool
    source: Source


RANDOM = {
    row.kernel: row
    for row in (
        RandomState(
            Kernel.FLASH, "2.7", (2, 1), False,
            Source("PyTorch flash_api.cpp", "mha_fwd: rng_state; before, scalars on the host", "v2.7"),
        ),
        RandomState(
            Kernel.CUDNN, "", (1, 1), True,
            Source("PyTorch aten/src/ATen/native/transformers/cuda/attention.cu", "_cudnn_attention_forward", "v2.4"),
        ),
        RandomState(
            Kernel.PACKAGE, "", (2,), False,
            Source("flash-attention csrc/flash_attn/flash_api.cpp", "mha_fwd: rng_state", "v2.3 to v2.8"),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Efficient:
    """The memory-efficient kernel. `statistics`: rows of logsumexp are padded to a multiple of it. `accumulates`: above
    this head dim 16-bit output is summed in fp32. `aligned`: of which a mask's rows must be multiples (elements);
    before torch `since`, `old_aligned`, and the mask is then padded for every head. Backward: `tiles` keys at once
    across all heads at most, one row of them from `many` heads on; a tile carries `header` bytes; blocks are whole
    `granule` elements."""

    statistics: int
    accumulates: int
    aligned: int
    old_aligned: int
    since: str
    tiles: int
    many: int
    header: int
    granule: int
    source: Source


EFFICIENT = Efficient(
    32, 128, 8, 16, "2.2", 200, 256, 16, 4,
    Source(
        "PyTorch aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h",
        "Params: workspace_size, GradQTempStorage; num_splits_key in attention_backward.cu", "v2.4 to v2.13",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tile:
    """One instance of the memory-efficient kernel's backward: queries x keys of a tile, up to which head dim, on which
    architectures (none: all), by numbers from `oldest` on; `wide`: of fp32 and of 16 bits before tensor cores."""

    queries: int
    keys: int
    largest: int
    wide: bool
    architectures: tuple[str, ...]
    source: Source


_INSTANCES = Source("PyTorch mem_eff_attention/kernels/cutlassB.h", "dispatch_cutlassB, in its order", "v2.13")
_ANY = 65536
_ROOMY = ("sm80", "sm90", "sm100", "sm103")
# The first one that holds counts.
TILES = (
    Tile(64, 64, 64, False, (), _INSTANCES),
    Tile(128, 64, 96, False, ("sm86", "sm89"), _INSTANCES),
    Tile(128, 128, 128, False, _ROOMY, _INSTANCES),
    Tile(64, 64, 128, False, (), _INSTANCES),
    Tile(128, 64, _ANY, False, _ROOMY, _INSTANCES),
    Tile(64, 64, _ANY, False, (), _INSTANCES),
    Tile(64, 64, 64, True, (), _INSTANCES),
    Tile(128, 64, 128, True, (*_ROOMY, "sm70"), _INSTANCES),
    Tile(64, 64, 128, True, (), _INSTANCES),
    Tile(128, 64, _ANY, True, (*_ROOMY, "sm70"), _INSTANCES),
    Tile(64, 64, _ANY, True, (), _INSTANCES),
)


@dataclass(frozen=True, slots=True)
class Composite:
    """PyTorch's own composite: from `since` on 16-bit inputs are cast to fp32 first and rows that are masked whole are
    set to zero."""

    since: str
    source: Source


COMPOSITE = Composite(
    "2.5",
    Source("PyTorch aten/src/ATen/native/transformers/attention.cpp", "_scaled_dot_product_attention_math", "v2.13"),
)
