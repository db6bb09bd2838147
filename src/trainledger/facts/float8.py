"""torchao's training in 8 bits: what its recipes scale, what stays in 16 bits, and its prototype without a compiler."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


def _read(path: str, read: str = "0.8 to 0.13") -> Source:
    return Source("torchao", f"torchao/{path}", read)


@dataclass(frozen=True, slots=True)
class LowRow:
    """Products of factors in 8 bits: the plan's word, the recipe where none is named, what everything else reads, and
    whether a cast is one kernel in eager mode too."""

    compute: str
    recipe: str
    reads: str
    kernels: bool
    source: Source


LOW: dict[str, LowRow] = {
    row.compute: row
    for row in (
        LowRow("fp8", "tensorwise", "bf16", False, _read("float8/config.py, Float8LinearConfig")),
        LowRow("mxfp8", "mxfp8_cublas", "bf16", True, _read("prototype/mx_formats/mx_linear.py, mx_mm")),
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
