"""What PEFT's other methods add to a linear layer: their parameters, by kind.

Sources: peft/tuners/{adalora,ia3,vera,loha,lokr,oft,boft,fourierft}/layer.py (0.21.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DType
from trainledger.facts.peft_methods import METHODS, TRAINED_RANKS
from trainledger.facts.versions import at_least
from trainledger.model.weights import Delta, Weight

DROPS = ("adalora", "vera")  # methods that drop some of a layer's input
PAIR = ("an element", "its mirror")  # a skew matrix has one parameter for both


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that is adapted: its path, outputs and inputs, the rank, the adapter's dtype, its kind and chance of
    dropout, PEFT's release, and the plan's options."""

    name: str
    outer: int
    inner: int
    rank: int
    dtype: DType
    kind: str
    dropout: float
    release: str
    options: Mapping[str, Any]

    def size(self, name: str) -> int:
        """One of the method's sizes: the plan's, or PEFT's default."""
        given = self.options.get(name)
        return METHODS[self.kind].size(name) if given is None else int(given)

    def weight(self, name: str, *sizes: int) -> Weight:
        """A trained parameter of the method."""
        dims = tuple(Axis(Dim.ROWS if at == 0 else Dim.COLUMNS, size) for at, size in enumerate(sizes))
        return Weight(f"{self.name}.{name}", dims, dtype=self.dtype, tuned=True)


def delta_of(layer: Layer) -> Delta:
    """The method's parameters on one layer, in the order in which it makes them."""
    weights = _MADE[layer.kind](layer)
    halves = tuple(len([one for one in weights if f"lokr_w{number}" in one.name]) for number in ("1", "2"))
    inside = layer.kind == "ia3" and _feeds_forward(layer)
    return Delta(layer.kind, weights, inside, halves, layer.dropout if layer.kind in DROPS else 0.0)


def _adalora(layer: Layer) -> tuple[Weight, ...]:
    rank = layer.size("init_r")
    return (
        layer.weight("lora_A.default", rank, layer.inner),
        layer.weight("lora_E.default", rank, 1),
        layer.weight("lora_B.default", layer.outer, rank),
        replace(layer.weight("ranknum.default", 1), tuned=at_least(layer.release or None, TRAINED_RANKS.since)),
    )


def _feeds_forward(layer: Layer) -> bool:
    """Whether the input is scaled rather than the result."""
    names = layer.options.get("feedforward_modules") or ()
    return any(f".{layer.name}".endswith(f".{name}") for name in names)


def _ia3(layer: Layer) -> tuple[Weight, ...]:
    sizes = (1, layer.inner) if _feeds_forward(layer) else (layer.outer, 1)
    return (layer.weight("ia3_l.default", *sizes),)


def _vera(layer: Layer) -> tuple[Weight, ...]:
    return (
        layer.weight("vera_lambda_b.default", layer.outer),
        layer.weight("vera_lambda_d.default", layer.rank),
    )


def _loha(layer: Layer) -> tuple[Weight, ...]:
    sides = {"a": (layer.outer, layer.rank), "b": (layer.rank, layer.inner)}
    return tuple(
        layer.weight(f"hada_w{number}_{side}.default", *sides[side]) for number in ("1", "2") for side in sides
    )


def _lokr(layer: Layer) -> tuple[Weight, ...]:
    factor = layer.size("decompose_factor")
    (few_out, many_out), (few_in, many_in) = (factors(size, factor) for size in (layer.outer, layer.inner))
    small = bool(layer.options.get("decompose_both")) and _narrow(layer.rank, few_out, few_in)
    return (
        *_factor(layer, "lokr_w1", (few_out, few_in), small),
        *_factor(layer, "lokr_w2", (many_out, many_in), _narrow(layer.rank, many_out, many_in)),
    )


def _narrow(rank: int, outer: int, inner: int) -> bool:
    """Whether a product of two factors of that rank takes the matrix's place."""
    return rank + rank < max(outer, inner)


def _factor(layer: Layer, name: str, sides: tuple[int, int], narrow: bool) -> tuple[Weight, ...]:
    outer, inner = sides
    if not narrow:
        return (layer.weight(f"{name}.default", outer, inner),)
    return layer.weight(f"{name}_a.default", outer, layer.rank), layer.weight(f"{name}_b.default", layer.rank, inner)


def factors(size: int, factor: int) -> tuple[int, int]:
    """Two numbers whose product is `size`, the first near `factor` (-1: near the root); lokr's `factorization`."""
    if factor > 0 and size % factor == 0:
        return factor, size // factor
    factor = size if factor == -1 else factor
    first, second = 1, size
    length = first + second
    while first < second:
        larger = next(number for number in range(first + 1, size + 1) if size % number == 0)
        if larger + size // larger > length or larger > factor:
            break
        first, second = larger, size // larger
    return min(first, second), max(first, second)


def _oft(layer: Layer) -> tuple[Weight, ...]:
    size = layer.inner // layer.rank if layer.rank else layer.size("oft_block_size")
    blocks = 1 if layer.options.get("block_share") else layer.inner // size
    return (layer.weight("oft_R.default.weight", blocks, size * (size - 1) // len(PAIR)),)


def _boft(layer: Layer) -> tuple[Weight, ...]:
    number = layer.size("boft_block_num")
    size = layer.inner // number if number else layer.size("boft_block_size")
    return (
        layer.weight("boft_R.default", layer.size("boft_n_butterfly_factor"), layer.inner // size, size, size),
        layer.weight("boft_s.default", layer.outer, 1),
    )


def _fourierft(layer: Layer) -> tuple[Weight, ...]:
    return (layer.weight("fourierft_spectrum.default", layer.size("n_frequency")),)


_MADE: dict[str, Callable[[Layer], tuple[Weight, ...]]] = {
    "adalora": _adalora, "ia3": _ia3, "vera": _vera, "loha": _loha, "lokr": _lokr, "oft": _oft, "boft": _boft,
    "fourierft": _fourierft,
}  # fmt: skip
