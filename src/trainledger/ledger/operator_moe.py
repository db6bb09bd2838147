"""Liger's fused mixture of experts in its published benchmark: grouped products over tokens sorted by expert.

Source: liger_kernel/ops/fused_moe.py (0.8.0 to 0.8.2) and benchmark/scripts/benchmark_fused_moe.py. The baseline's loop
over experts depends on how many tokens each was drawn, which the records do not say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import INT32, DType
from trainledger.facts.operator_kernels import GROUPED_EXPERTS
from trainledger.ledger.operator_tools import parameter, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


class _Layer(NamedTuple):
    """The layer's values: tokens, both stacks of weights, the routing's weights; and rows of tokens by expert."""

    x: int
    up: int
    down: int
    routed: int
    rows: Axis
    dtype: DType

    @property
    def ins(self) -> tuple[int, int, int, int]:
        return (self.x, self.up, self.down, self.routed)


def fused_moe(run: OperatorRun) -> Written:
    """`T` tokens, each through `K` of `E` experts. The script scales the weights after it drew them, so that what it
    drew is held beside them, and the gradients pass through the scaling."""
    t = run.tape()
    dtype, hidden = run.element, Axis(Dim.HIDDEN, run.size("H"))
    tokens, experts = Axis(Dim.TOKENS, run.size("T")), Axis(Dim.EXPERTS, run.size("E"))
    inner, both = (Axis(Dim.FFN, count * run.size("intermediate_dim")) for count in (1, 1 + 1))
    # leaves too: their new gradients are added to older ones while the scaling runs backward
    x = parameter(t, "x", (tokens, hidden), dtype)
    routed = parameter(t, "routing weights", (tokens, Axis(Dim.SLOTS, run.size("K"))), dtype)
    drawn = (parameter(t, "up", (experts, both, hidden), dtype), parameter(t, "down", (experts, hidden, inner), dtype))
    scaled = tuple(t.outside(t.dims[weight], dtype, True) for weight in drawn)
    for weight, value in zip(drawn, scaled, strict=True):
        t.run(Prim("mul", (weight,), (value,), (), (Step(Code.GRAD, 0),), ()))
    layer = _Layer(x, scaled[0], scaled[1], routed, Axis(Dim.ROWS, run.size("T", "K")), dtype)
    y = _fused(t, layer, (both, inner))
    given = (*(dtype.bytes_of(elements(t.dims[value])) for value in scaled), INT32.bytes_of(layer.rows.size))
    return Written(t, (x, routed), drawn, (y,), given, products=True, drawn=True)


def _routing(t: Tape, layer: _Layer) -> tuple[list[int], list[int]]:
    """Arrays of numbers that say which row is whose: those that are saved, and those that only the function names."""
    k, experts = GROUPED_EXPERTS, t.dims[layer.up][0].size
    blocks = -(-t.dims[layer.x][0].size * t.dims[layer.routed][-1].size // k.slots)
    tiles = layer.rows.size // k.tile + experts  # at most: each expert's last tile may be a part
    saved = [experts + 1, *[layer.rows.size] * len(("gather", "scatter", "back")), tiles, tiles]
    named = [experts * blocks, experts, experts + 1]

    def made(sizes: list[int]) -> list[int]:
        return [t.fresh((Axis(Dim.ELEMENTS, size),), INT32, False, "routing") for size in sizes]

    return made(saved), made(named)


def _fused(t: Tape, layer: _Layer, widths: tuple[Axis, Axis]) -> int:
    """Saves the rows before the activation; backward makes the rest again, and all gradients before it returns."""
    saved, named = _routing(t, layer)
    rows, dtype = layer.rows, layer.dtype
    t.run(Prim("routing", (layer.routed,), (*named, *saved), (), (), ()))
    before, after, result = (
        t.fresh((rows, width), dtype, False, name)
        for width, name in (
            (widths[0], "rows before the activation"), (widths[1], "rows after it"), (t.dims[layer.x][-1], "results")
        )
    )  # fmt: skip
    t.run(Prim("experts", layer.ins, (before, after, result), (), (), ()))
    y = t.fresh(t.dims[layer.x], dtype, True, "output")
    steps = _steps(t, layer, widths)
    t.run(Prim("sum over experts", (*layer.ins, result), (y,), (before, *saved), steps, ()))
    t.end([before, after, result, *saved, *named[1:-1]])
    return y


def _steps(t: Tape, layer: _Layer, widths: tuple[Axis, Axis]) -> tuple[Step, ...]:
    def rows(width: Axis, name: str) -> tuple[int, ...]:
        dims: Dims = (layer.rows, width)
        return several(t, dims, layer.dtype, name)

    inner, wide = widths[::-1]
    inside = (*rows(wide, "gradient before the activation"), *rows(inner, "weighted rows"))
    spread = rows(t.dims[layer.x][-1], "gradient of each row")
    gradients = [Step(Code.GRAD, layer.ins.index(value)) for value in (layer.routed, layer.down, layer.x, layer.up)]
    return (*born(*inside), *gradients[:-2], *born(*spread), *gradients[-2:], *dead(*inside, *spread))


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {("fused_moe", "liger"): fused_moe}
