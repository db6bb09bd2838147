"""Megatron-Core's own layers as primitives (`transformer_impl: local`).

Sources: megatron/core/transformer/{transformer_layer,attention,mlp,dot_product_attention}.py,
tensor_parallel/{layers,mappings}.py, fusions/*.py (0.19.2).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, stretched
from trainledger.facts.dtypes import BOOL, FP32
from trainledger.facts.megatron import QKV
from trainledger.ledger import aten, mega_attention, mega_mla, nn
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_embedding import cut, looked
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.tape import OWN, Code, Prim, Step, Tape
from trainledger.model.operations_megatron import (
    Activated,
    Along,
    Core,
    Joined,
    Latents,
    Looked,
    MegatronSpec,
    Normalise,
    Paired,
    Parallel,
    Queries,
    Regathered,
    Scattered,
    Turned,
    Unfolded,
    Whole,
)
from trainledger.model.program import Op, Weight

PARTS, NORMED = "queries, keys and values", "n"  # names of what attention, and the function around it, hold


def apply(f: Frame, op: Op, ins: list[int]) -> list[int]:
    """The operation's primitives on the tape; returns the values of its `outs`."""
    match op.spec:
        case Parallel():
            return [linear(f, op.spec, ins[0], op.dims)]
        case Normalise():
            return [norm(f, op.spec, ins[0])]
        case Queries():
            return queries(f, ins[0], op.dims)
        case Turned():
            return [mega_attention.turned(f, x) for x in ins]
        case Latents():
            return mega_mla.latents(f, ins[0], op.dims)
        case Unfolded(straight):
            return mega_mla.unfolded(f, straight, (ins[0], ins[1], ins[2]), op.dims)
        case Core(dropout):
            return [mega_attention.core(f, dropout, (ins[0], ins[1], ins[2]), op.dims)]
        case Activated():
            return [activated(f, op.spec, ins[0], op.dims)]
        case Joined():
            return [joined(f, op.spec, ins[0], ins[1])]
        case Looked():
            return [looked(f, op.spec, ins[0], op.dims)]
        case Paired():
            return [aten.cat(f.tape, ins, (*f.tape.dims[ins[0]][:-1], *op.dims), "both side by side")]
        case Regathered(whole):
            return [regathered(f, ins[0], op.dims, whole)]
        case Whole() | Scattered():
            return [exchanged(f, ins[0], isinstance(op.spec, Whole))]
        case _:
            raise TypeError(f"no rule for {type(op.spec).__name__}")


def knows(spec: object) -> bool:
    """Whether an operation is one of Megatron's."""
    return isinstance(spec, MegatronSpec)


def norm(f: Frame, spec: Normalise, x: int) -> int:
    """torch.nn.LayerNorm, or torch.nn.RMSNorm in one kernel, which saves its input and one fp32 number a row."""
    t, weight = f.tape, f.need(spec.weight)
    if spec.bias is not None:
        return nn.layer_norm(t, x, weight, f.need(spec.bias))
    rows = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    out = t.fresh(t.dims[x], t.dtype[x], True, "output")
    inverse = t.fresh(rows, FP32, False, "inverse root mean square")
    steps = (Step(Code.GRAD, 0), Step(Code.GRAD, 1))
    return t.run(Prim("rms_norm", (x, weight), (out, inverse), (x, inverse), steps, ()))


def ranks_of(f: Frame, spec: Parallel) -> int:
    """Over how many ranks the layer's sequence is spread, which exchange it there."""
    if spec.along is Along.WHOLE or spec.apart:
        return 1
    return mega_of(f).parts.etp if spec.expert else mega_of(f).ranks


def linear(f: Frame, spec: Parallel, x: int, dims: Dims) -> int:
    """A linear layer whose weight is spread over ranks; a bias is added here unless it is handed on."""
    t, ranks = f.tape, ranks_of(f, spec)
    if spec.along is not Along.ROW:
        bias = None if spec.later else spec.bias
        return _product(f, (spec.weight, bias), x, (*stretched(t.dims[x], ranks)[: -_tail(t, x)], *dims), ranks)
    whole = _product(f, (spec.weight, None), x, (*t.dims[x][: -_tail(t, x)], *dims), 1)
    if ranks == 1:
        return whole
    part = t.fresh(cut(t.dims[whole], ranks), t.dtype[whole], True, "part of the sum")
    t.run(Prim("reduce-scatter", (whole,), (part,), (), (Step(Code.GRAD, 0),), ()))
    t.end([whole])
    return part


def _tail(t: Tape, x: int) -> int:
    """How many of a value's dims come after batch and sequence."""
    return len([one for one in t.dims[x] if one.dim not in (Dim.BATCH, Dim.SEQUENCE)])


def _product(f: Frame, weights: tuple[Weight, Weight | None], x: int, dims: Dims, ranks: int) -> int:
    """x W^T, and b added to it in another tensor: input and weight are saved whatever is trained. Of a sequence that is
    gathered in a buffer which all layers share, the input's gradient is whole until its part is summed; it and the
    product's own gradient live until those of weight and bias are made, in this order."""
    t, (weight, bias) = f.tape, weights
    w = f.need(weight)
    out = t.fresh(dims, t.dtype[x], True, "output")
    steps: tuple[Step, ...] = (Step(Code.GRAD, 0), *(() if mega_of(f).added else (Step(Code.GRAD, 1),)))
    if mega_of(f).added and mega_of(f).day.anew:
        unused = aten.temporary(t, weight.dims, t.dtype[x], "unused gradient of a weight")
        steps = (*steps, Step(Code.BORN, 0, unused), Step(Code.DEAD, 0, unused))
    added = (f.need(bias),) if bias is not None else ()
    for one in added:
        scratch = aten.column_scratch(t, dims, t.dims[one]) if t.grad[one] else ()
        steps = (*steps, Step(Code.GRAD, len((x, w))), *scratch)
    if ranks > 1:
        whole = aten.temporary(t, stretched(t.dims[x], ranks), t.dtype[x], "whole gradient of the input")
        t.within.add(whole)
        steps = (Step(Code.BORN, 0, whole), *steps, Step(Code.DEAD, 0, whole))
    t.run(Prim(OWN, (x, w, *added), (out,), (x, w), steps, ()))
    if not added:
        return out
    total = t.fresh(dims, t.dtype[x], True, "with bias")
    t.run(Prim("add", (out,), (total,), (), (Step(Code.PASS, 0),), ()))
    t.end([out])
    return total


def _biased(f: Frame, bias: Weight, x: int) -> int:
    """x + b, another tensor."""
    t = f.tape
    out = t.fresh(t.dims[x], t.dtype[x], True, "with bias")
    w = f.need(bias)
    scratch = aten.column_scratch(t, t.dims[x], t.dims[w]) if t.grad[w] else ()
    t.run(Prim("add", (x, w), (out,), (), (Step(Code.PASS, 0), Step(Code.GRAD, 1), *scratch), ()))
    t.end([x])
    return out


def queries(f: Frame, x: int, dims: Dims) -> list[int]:
    """Queries, keys and values as parts of one tensor; queries of several groups lie between their keys and are
    copied, so that heads follow each other."""
    t, (groups, width) = f.tape, dims
    per = t.dims[x][-1].size // (groups.size * width.size) - QKV.others
    front = t.dims[x][:-1]
    each = (*front, Axis(Dim.KV_HEADS, groups.size), width)
    wide = (*front, Axis(Dim.HEADS, groups.size * per), width)
    q, k, v = aten.chunk(t, x, [wide, each, each])
    if groups.size > 1 and per > 1:
        seen = q
        q = aten.copy(t, q)
        t.end([seen])
    if mega_of(f).day.listed:
        f.names[PARTS] = q
    return [q, k, v]


def activated(f: Frame, spec: Activated, x: int, dims: Dims) -> int:
    """fc1's bias and the feed-forward's function: in one kernel, which saves what it read, or one after the other."""
    t = f.tape
    out_dims = (*t.dims[x][:-1], *dims)
    if mega_of(f).fusions.activation:
        return _fused(f, spec, x, out_dims)
    if spec.bias is not None:
        seen, x = x, _biased(f, spec.bias, x)
        for name in [name for name, value in f.names.items() if value == seen]:  # bound anew
            f.names[name] = x
    if not spec.gated:
        return aten.unary(t, "gelu", x, saves_in=True)
    first, second = aten.chunk(t, x, [out_dims, out_dims])
    act = aten.unary(t, "silu", first, saves_in=True)
    moved = aten.shift(t, second)  # by an offset that is 0 unless the model has one
    out = aten.mul(t, act, moved)
    t.end([x, first, second, act, moved])
    return out


def _fused(f: Frame, spec: Activated, x: int, dims: Dims) -> int:
    t = f.tape
    ins = (x,) if spec.bias is None else (x, f.need(spec.bias))
    out = t.fresh(dims, t.dtype[x], True, "output")
    steps = tuple(Step(Code.GRAD, at) for at in range(len(ins)))
    return t.run(Prim("bias and activation", ins, (out,), ins, steps, ()))


def joined(f: Frame, spec: Joined, h: int, x: int) -> int:
    """residual + dropout(x + bias), after attention or the feed-forward has returned; the function around both returns
    then."""
    t = f.tape
    t.end([f.names.pop(PARTS)] if PARTS in f.names else [])
    out = _summed(f, spec, h, x)
    t.end([f.names.pop(NORMED)] if NORMED in f.names else [])
    return out


def _summed(f: Frame, spec: Joined, h: int, x: int) -> int:
    t, training = f.tape, f.setting.training
    chance = spec.dropout if training else 0
    if mega_of(f).fusions.dropout:
        ins = (h, x) if spec.bias is None else (h, x, f.need(spec.bias))
        out = t.fresh(t.dims[h], t.dtype[h], True, "sum")
        mask = (t.fresh(t.dims[x], BOOL, False, "dropout mask"),) if chance else ()
        first = Step(Code.GRAD, 1) if chance else Step(Code.PASS, 1)
        steps = (Step(Code.PASS, 0), first, *(Step(Code.GRAD, at) for at in range(len((h, x)), len(ins))))
        return t.run(Prim("bias, dropout, sum", ins, (out, *mask), mask, steps, ()))
    if spec.bias is not None:
        x = _biased(f, spec.bias, x)
    dropped = aten.dropout(t, x, chance)
    out = aten.add(t, h, dropped, "sum")
    t.end([x, dropped])
    return out


def exchanged(f: Frame, x: int, whole: bool) -> int:
    """The sequence of all ranks over which it is spread, or this rank's part of the ranks' sum."""
    t, ranks = f.tape, mega_of(f).ranks
    if ranks == 1:
        return x
    dims = stretched(t.dims[x], ranks) if whole else cut(t.dims[x], ranks)
    out = t.fresh(dims, t.dtype[x], True, "gathered" if whole else "part of the sum")
    return t.run(Prim("all-gather" if whole else "reduce-scatter", (x,), (out,), (), (Step(Code.GRAD, 0),), ()))


def regathered(f: Frame, x: int, dims: Dims, stays: bool) -> int:
    """All ranks' parts received one after the other, then side by side; a rank's part of the sequence is a view, where
    it does not keep all of it (`stays`)."""
    t, mega = f.tape, mega_of(f)
    if mega.parts.tp == 1:
        return aten.view(t, x, (*t.dims[x][:-1], *dims))
    whole = (*t.dims[x][:-1], *dims)
    work = (aten.temporary(t, whole, t.dtype[x], "parts of all ranks"),)
    made = t.fresh(whole, t.dtype[x], True, "gathered")
    t.run(Prim("all-gather", (x,), (made,), (), (Step(Code.GRAD, 0),), work))
    if mega.ranks == 1 or stays:
        return made
    part = t.alias(made, cut(whole, mega.ranks))
    t.run(Prim("part of the sequence", (made,), (part,), (), (Step(Code.GRAD, 0),), ()))
    t.end([made])
    return part
