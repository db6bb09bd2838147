"""Activations and gated layers of published benchmarks: tiled feed-forward layers, Megatron's gated product, relu^2.

Sources: liger_kernel/ops/{tiled_mlp,swiglu,geglu,relu_squared}.py (0.6.3 to 0.8.2), the benchmarks' own copy of
DeepSpeed's tiled layer, and Megatron-LM's fused_bias_swiglu.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16
from trainledger.ledger import aten
from trainledger.ledger.operator_tools import SCALAR, entry, parameter, several
from trainledger.ledger.operator_writers import OperatorRun, Written, gated_mlp
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead

PAIR = 1 + 1


def drawn_mlp(run: OperatorRun) -> Written:
    """A gated feed-forward layer whose benchmark draws the gradient in each repetition."""
    return gated_mlp(run)._replace(drawn=True)


class _Tile(NamedTuple):
    """Dims of one part of the tokens, at the layer's width and the inner one; of a weight; a value of their dtype."""

    tape: Tape
    outer: Dims
    inner: Dims
    weight: Dims
    like: int

    def made(self, dims: Dims, *names: str) -> tuple[int, ...]:
        return several(self.tape, dims, self.tape.dtype[self.like], *names)


def tiled_mlp(run: OperatorRun) -> Written:
    """A gated layer over `num_shards` parts of the tokens: none keeps anything, backward runs each part again."""
    t = run.tape()
    shards, hidden = run.size("num_shards"), Axis(Dim.HIDDEN, run.size("hidden_size"))
    tokens, inner = run.size("bsz", "T"), Axis(Dim.FFN, run.size("intermediate_size"))
    x = entry(t, "x", (Axis(Dim.TOKENS, tokens), hidden), run.element)
    weights = tuple(parameter(t, name, (inner, hidden), run.element) for name in ("gate", "up", "down"))
    rows = Axis(Dim.TOKENS, -(-tokens // shards))
    tile = _Tile(t, (rows, hidden), (rows, inner), (inner, hidden), x)
    liger = run.implementation == "liger_tiled"
    y = t.fresh(t.dims[x], run.element, True, "output")
    earlier = tile.made(tile.outer, *("result of a part" for _ in range(shards - 1)))
    parts = [t.fresh(tile.outer, run.element, False, "result of a part") for _ in range(shards)]
    product = t.fresh(tile.inner, run.element, False, "product of the last part")
    factors = tile.made(tile.inner, "gate or its activation", "up")
    t.run(Prim("product", (x,), (product,), (), (), (*earlier, *factors)))
    # Liger's code names gate and up, so that they live until the part's result is there
    last = (*earlier, *tile.made(tile.inner, "gate", "up")) if liger else ()
    t.run(Prim("last part", (x, product), (parts[-1],), (), (), last))
    t.run(Prim("all parts", (x, product), tuple(parts[:-1]) or (t.alias(product),), (), (), ()))
    steps = (Step(Code.GRAD, 0), *(_named_again(tile) if liger else _chained_again(tile)))
    t.run(Prim("tiled mlp", (x, *weights, *parts), (y,), (x,), steps, ()))
    return Written(t, (x,), weights, (y,), products=True, drawn=True)


def _named_again(tile: _Tile) -> tuple[Step, ...]:
    """One part with Liger's product, whose backward writes the factors' gradients over them."""
    gate, up, product = tile.made(tile.inner, "gate", "up", "product")
    (out,) = tile.made(tile.outer, "result")
    (by_product,) = tile.made(tile.inner, "gradient of the product")
    down, high, low = tile.made(tile.weight, "gradient of down", "gradient of up", "gradient of gate")
    one, other = tile.made(tile.outer, "gradient by up", "gradient by gate")
    return (
        *born(gate, up, product, out, down, by_product), *dead(product, down, by_product), *born(high, one),
        *dead(up, high), *born(low, other), *dead(gate, low, other, one, out),
    )  # fmt: skip


def _chained_again(tile: _Tile) -> tuple[Step, ...]:
    """One part by plain operations, as Transformers writes the layer."""
    gate, act, up, product = tile.made(tile.inner, "gate", "activation", "up", "product")
    (out,) = tile.made(tile.outer, "result")
    by_product, by_act, by_up, by_gate = tile.made(
        tile.inner, *(f"gradient of the {name}" for name in ("product", "activation", "up", "gate"))
    )
    down, high, low = tile.made(tile.weight, "gradient of down", "gradient of up", "gradient of gate")
    one, other = tile.made(tile.outer, "gradient by up", "gradient by gate")
    return (
        *born(gate, act, up, product, out, down, by_product), *dead(product, down), *born(by_act, by_up),
        *dead(by_product, act, up), *born(high, one), *dead(by_up, high), *born(by_gate), *dead(by_act, gate),
        *born(low, other), *dead(by_gate, low, other, one, out),
    )  # fmt: skip


def _summed(t: Tape, x: int) -> int:
    """The sum of all elements; its gradient is one number seen everywhere."""
    out = t.fresh(SCALAR, t.dtype[x], True, "sum")
    return t.run(Prim("sum", (x,), (out,), (), (Step(Code.SEEN, 0),), ()))


def megatron_swiglu(run: OperatorRun) -> Written:
    """silu(gate) * up of one tensor [S, B, 2 ffn] that holds both; the benchmark sums it and clears the gradient."""
    t = run.tape()
    tokens, width = Axis(Dim.TOKENS, run.size("S", "B")), Axis(Dim.FFN, run.size("ffn_local"))
    dtype = run.element if run.dtype else BF16  # which the script makes
    x = entry(t, "x", (tokens, Axis(Dim.FFN, PAIR * width.size)), dtype)
    if run.implementation == "torch":
        gate, up = aten.chunk(t, x, [(tokens, width)] * PAIR)
        y = aten.mul(t, aten.unary(t, "silu", gate, saves_in=True), up)
    else:
        y = t.fresh((tokens, width), dtype, True, "product")
        t.run(Prim("gated product", (x,), (y,), (x,), _gated_steps(t, run, y), ()))
    return Written(t, (x,), (), (_summed(t, y),), kept=(y,), first=True)


def _gated_steps(t: Tape, run: OperatorRun, y: int) -> tuple[Step, ...]:
    """Megatron's fused kernel reads the one number; Liger's is handed a whole gradient and can write over its input."""
    if run.implementation == "megatron":
        return (Step(Code.GRAD, 0),)
    whole = several(t, t.dims[y], t.dtype[y], "contiguous gradient")
    return (*born(*whole), *(() if run.implementation == "liger_in_place" else (Step(Code.GRAD, 0),)), *dead(*whole))


def relu_squared(run: OperatorRun) -> Written:
    """relu(x)^2 of `N` elements."""
    t = run.tape()
    x = entry(t, "x", (Axis(Dim.ELEMENTS, run.size("N")),), run.element)
    if run.implementation == "torch":
        y = aten.square(t, aten.unary(t, "relu", x, saves_out=True))
    else:
        y = aten.unary(t, "relu squared", x, saves_in=True)
    return Written(t, (x,), (), (y,), drawn=True)


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("relu_squared", "liger"): relu_squared,
    ("relu_squared", "torch"): relu_squared,
    **{("megatron_swiglu", name): megatron_swiglu for name in ("liger", "liger_in_place", "torch", "megatron")},
    **{
        (operator, implementation): tiled_mlp if implementation.endswith("tiled") else drawn_mlp
        for operator in ("tiled_swiglu", "tiled_geglu")
        for implementation in ("huggingface", "liger", "liger_tiled", "deepspeed_tiled")
    },
}
