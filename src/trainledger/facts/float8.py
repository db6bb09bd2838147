"""torchao's training in 8 and 4 bits: what recipes scale, what stays in 16 bits, its prototype without a compiler."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


def _read(path: str, read: str = "0.8 to 0.13") -> Source:
    return Source("torchao", f"torchao/{path}", read)


@dataclass(frozen=True, slots=True)
class LowRow:
    """Products of factors in few bits: the plan's word, the recipe where none is named, what everything else reads,
    whether a cast is one kernel in eager mode too, whether casts are kept for backward, and whether selective recompute
    by operation lists the product."""

    compute: str
    recipe: str
    reads: str
    kernels: bool
    keeps: bool
    listed: bool
    source: Source


LOW: dict[str, LowRow] = {
    row.compute: row
    for row in (
        LowRow("fp8", "tensorwise", "bf16", False, False, True, _read("float8/config.py, Float8LinearConfig")),
        LowRow("mxfp8", "mxfp8_cublas", "bf16", True, False, True, _read("prototype/mx_formats/mx_linear.py, mx_mm")),
        LowRow(
            "nvfp4",
            "nvfp4",
            "bf16",
            True,
            True,
            False,
            _read("prototype/moe_training/nvfp4_training/nvfp4_linear.py, nvfp4_mm_triton", "36027d82d"),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe's name, and how it scales."""

    name: str
    scales: str
    source: Source


_CONFIG = _read("float8/config.py, Float8LinearRecipeName; prototype/mx_formats/config.py")
RECIPES: dict[str, str] = {
    row.name: row.scales
    for row in (
        Recipe("tensorwise", "tensor", _CONFIG),
        Recipe("rowwise", "rows", _CONFIG),
        Recipe("rowwise_with_gw_hp", "rows-but-weights", _CONFIG),
        Recipe("mxfp8_cublas", "blocks", _CONFIG),
        Recipe("mxfp8_cublas_rceil", "blocks", _CONFIG),
        Recipe("nvfp4", "blocks", _CONFIG),
    )
}


@dataclass(frozen=True, slots=True)
class Prototype:
    """The kernel set that runs casts as kernels of its own; without recompute it keeps each layer's input cast. It was
    brought into torchtitan on a branch of this commit (pull request 778)."""

    kernels: str
    torchtitan: str
    source: Source


NO_COMPILE = Prototype(
    "float8nocompile", "2fa6d8367", _read("prototype/float8nocompile/float8nocompile_linear.py", "0.8")
)
