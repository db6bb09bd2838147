"""Linear layers and embeddings as they are: plain, quantised, adapted, or both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.peft import DENSE
from trainledger.facts.scope import OWN_MODELS
from trainledger.ledger import adapters, aten, deltas, float8, nn, prompts, quantised, rules_litgpt
from trainledger.ledger.tape import Tape
from trainledger.model import program as p

if TYPE_CHECKING:
    from trainledger.ledger.frame import Frame


def linear(f: Frame, spec: p.Linear, x: int, tail: Dims) -> int:
    """The layer's result, of dims `tail` for each token."""
    tokens = f.tape.dims[x][: len(f.dims(()))]
    dims = (*tokens, *tail)
    kind = _kind(spec)

    def base(value: int) -> int:
        if spec.low is not None:
            compiled = f.software.compiled
            made = float8.linear(f.tape, float8.Layer(value, f.need(spec.weight), dims, spec.low, compiled))
            return made if spec.bias is None else _biased(f, made, spec.bias)
        values = f.need(spec.weight), f.param(spec.bias)
        if spec.weight.packed is not None:
            return quantised.linear(f.tape, quantised.Base(value, dims, *values, spec.weight.packed))
        return kind(f.tape, value, dims, *values)

    if isinstance(spec.adapter, p.Tokens):
        return nn.linear(f.tape, x, dims, prompts.table(f.tape, f.need(spec.weight), f.need(spec.adapter.weight)))
    if isinstance(spec.adapter, p.Delta):
        return deltas.linear(f.tape, spec.adapter.kind, base, _delta(f, spec, spec.adapter, x, tail))
    if isinstance(spec.adapter, p.FusedLowRank):
        low, chance = spec.adapter, spec.adapter.dropout if f.setting.training else 0
        return rules_litgpt.fused(
            f.tape, base, rules_litgpt.Call(x, dims, low, f.need(low.down), f.need(low.up), chance)
        )
    return base(x) if spec.adapter is None else adapters.linear(f.tape, base, _call(f, spec, x, (tokens, tail)))


def _biased(f: Frame, out: int, bias: p.Weight) -> int:
    """A product in 8 bits, to which a bias is added by itself."""
    result = aten.add(f.tape, out, f.need(bias), "with bias")
    f.tape.end([out])
    return result


def _kind(spec: p.Linear) -> Callable[[Tape, int, Dims, int, int | None], int]:
    if spec.apart:
        return nn.apart_linear
    return nn.conv1d if spec.conv1d else nn.flat_linear if spec.flat else nn.linear


def _delta(f: Frame, spec: p.Linear, delta: p.Delta, x: int, tail: Dims) -> deltas.Call:
    inner, outer = p.sides(spec)
    tokens, chance = f.tape.dims[x][: len(f.dims(()))], delta.dropout if f.setting.training else 0
    values = tuple(f.need(one) for one in delta.weights)
    return deltas.Call(x, tokens, tail, outer, inner, values, f.param(spec.bias), chance, delta.inside, delta.parts)


def prompted(f: Frame, spec: p.Prompts, words: int) -> list[int]:
    """The words' rows after the prompt's, and the prompt's."""
    pairs = tuple((f.need(weight), f.need(bias)) for weight, bias in spec.layers)
    outs = prompts.prompts(f.tape, prompts.Rows(f.need(spec.table), pairs, words))
    f.names["labels"] = prompts.labels(f.tape, f.dims(()))
    return outs


def embedding(f: Frame, spec: p.Embed, ids: int, dims: Dims) -> int:
    """Rows of the table, and of its adapter."""
    if spec.offset:
        ids = aten.shift(f.tape, ids)
    own = f.need(spec.weight)
    if spec.fewer:
        dims = (dims[0], Axis(Dim.SEQUENCE, dims[1].size - spec.fewer), *dims[2:])
    if isinstance(spec.adapter, p.Tokens):
        return nn.embedding(f.tape, ids, prompts.table(f.tape, own, f.need(spec.adapter.weight)), dims)
    rows = nn.embedding(f.tape, ids, own, dims)
    if spec.adapter is None:
        return rows
    return adapters.embedding(f.tape, rows, _call(f, spec, ids, (dims[:-1], dims[-1:])))


def expert(f: Frame, weight: p.Weight, low: p.LowRank | None, x: int, out: Axis) -> int:
    """An expert's linear layer, called by itself on the rows of its tokens."""
    tokens = f.tape.dims[x][:-1]
    dims = (*tokens, out)

    def base(value: int) -> int:
        if weight.packed is not None:
            return quantised.linear(f.tape, quantised.Base(value, dims, f.need(weight), None, weight.packed))
        return nn.flat_linear(f.tape, value, dims, f.need(weight))

    if low is None:
        return base(x)
    call = _call(f, p.Linear(weight, adapter=low), x, (tokens, (out,)))
    return adapters.linear(f.tape, base, call._replace(flat=True))


def _call(f: Frame, spec: p.Linear | p.Embed, x: int, dims: tuple[Dims, Dims]) -> adapters.Call:
    low = spec.adapter
    assert isinstance(low, p.LowRank)
    tokens, tail = dims
    values = adapters.Low(f.need(low.down), f.need(low.up), f.param(low.bias), f.param(low.magnitude))
    chance = low.dropout if f.setting.training else 0
    own = f.need(spec.weight), f.param(getattr(spec, "bias", None))
    own_code = f.software.framework in OWN_MODELS
    kind = f.software.framework if own_code else spec.weight.packed.kind.name if spec.weight.packed else DENSE
    idle = low.idle and f.setting.training
    release, packed = f.software.release("peft"), spec.weight.packed
    return adapters.Call(x, tokens, tail, values, chance, kind, release, *own, packed, idle=idle)
