"""Megatron-Core's mixture of experts as primitives: which rule writes which operation, and the experts themselves.

Source: megatron/core/transformer/moe/experts.py; transformer/mlp.py; fusions/fused_bias_swiglu.py (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Sequence

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.ledger import aten, mega_dispatch, mega_router, rules_te_fp8
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.mega_routing import own_dummies
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead
from trainledger.model.operations_megatron_moe import (
    EXPERTS,
    Combined,
    Dispatched,
    GroupedExperts,
    MoeSpec,
    Returned,
    Routes,
    Shared,
    one_of,
)
from trainledger.model.program import Weight

FIRST = "expert_fc1"
AGAIN = "moe_act"
LAST = "expert_fc2"


def apply(f: Frame, spec: MoeSpec, ins: list[int]) -> list[int]:
    """The operation's primitives on the tape; returns the values of its `outs`."""
    match spec:
        case Routes():
            return mega_router.router(f, spec, ins[0])
        case Dispatched():
            return mega_dispatch.dispatch(f, spec, ins)
        case GroupedExperts():
            return [experts(f, spec, ins)]
        case Returned():
            return [mega_dispatch.returned(f, spec, ins[0])]
        case Combined():
            return [mega_dispatch.combined(f, spec, ins[0], ins[1])]
        case Shared():
            return [aten.add(f.tape, ins[0], ins[1])]


def experts(f: Frame, spec: GroupedExperts, ins: list[int]) -> int:
    """What this rank's experts make of the rows they are given, on its way back."""
    t = f.tape
    way, (x, probs), back = mega_dispatch.arrived(f, spec, ins)
    padding = padded(f, way.routing.grouped)
    read = (aten.copy(t, x), aten.copy(t, probs)) if padding else (x, probs)
    made = grouped(f, spec, *read) if way.routing.grouped else sequential(f, spec, *read)
    if padding:
        whole, made = made, aten.copy(t, made)
        t.end([*read, whole])
    out = mega_dispatch.left(way, made, probs, back, spec.up.dims[0].size > 1)
    t.end([x, probs, *back])
    return out


def padded(f: Frame, grouped: bool) -> bool:
    """Whether grouped experts' rows are copied so that each expert has a multiple of what 8-bit products ask for."""
    quant = rules_te_fp8.quant_of(f)
    return grouped and quant is not None and quant.padded


def rows_of(rows: int, count: int) -> list[int]:
    """Rows of each of a rank's experts, spread evenly."""
    each, more = divmod(rows, count)
    return [each + (at < more) for at in range(count)]


def sequential(f: Frame, spec: GroupedExperts, x: int, probs: int) -> int:
    """SequentialMLP: each expert is a feed-forward of its own over its part of the rows; their results are joined."""
    t, count = f.tape, spec.up.dims[0].size
    if count == 1:
        return _one(f, spec, 0, x, probs)
    hidden = t.dims[x][1:]
    each = [(Axis(Dim.SLOTS, rows),) for rows in rows_of(t.dims[x][0].size, count)]
    tokens = aten.chunk(t, x, [(*rows, *hidden) for rows in each])
    chances = aten.chunk(t, probs, each)
    made = [_one(f, spec, at, *pair) for at, pair in enumerate(zip(tokens, chances, strict=True))]
    out = aten.cat(t, made, t.dims[x], "experts' results")
    t.end([*tokens, *chances, *made])
    return out


def _one(f: Frame, spec: GroupedExperts, at: int, x: int, probs: int) -> int:
    up, down = (one_of(stack, at, False) for stack in (spec.up, spec.down))
    inner = _product(f, [up], x)
    if not spec.biases:
        return _product(f, [down], weighed(f, spec, inner, probs))
    t = f.tape
    first, last = (f.need(one_of(stack, at, False)) for stack in spec.biases)
    with_bias = aten.add(t, inner, first, "with bias")
    t.end([inner])
    out = _product(f, [down], weighed(f, spec, with_bias, probs))
    share = aten.mul(t, last, aten.view(t, probs, (t.dims[x][0], Axis(Dim.ONE, 1))), "weighed bias")
    made = aten.add_into(t, out, share)
    t.end([with_bias, share])
    return made


def _product(f: Frame, weights: Sequence[Weight], x: int, biases: Sequence[Weight] = ()) -> int:
    """Rows times the matrices of their experts, plus these biases; the input's gradient is made before the weights'."""
    t, quant = f.tape, rules_te_fp8.quant_of(f)
    params = [f.need(weight) for weight in weights]
    ins, saves = (x, *params, *(f.need(bias) for bias in biases)), (x, *params)
    keep = quant is not None and quant.keeps_input(_whole_name(weights[0]))
    if quant is not None:
        found = rules_te_fp8.read(f, quant, x, False, keep)
        saves = (*found.saved, *params)
    out = t.fresh((t.dims[x][0], weights[0].dims[0]), t.dtype[x], True, f"{_layer(weights[0])} output")
    mega, steps = mega_of(f), [Step(Code.GRAD, 0)]
    if not mega.added:
        steps += [Step(Code.GRAD, place) for place in range(1, 1 + len(params))]
    elif mega.engine is not None and own_dummies(mega.engine.release):
        unused = [aten.temporary(t, weight.dims, t.dtype[x], "unused gradient of an expert") for weight in weights]
        steps += [Step(code, 0, one) for code in (Code.BORN, Code.DEAD) for one in unused]
    steps += [Step(Code.GRAD, place) for place in range(1 + len(params), len(ins))]
    if quant is not None:
        work = rules_te_fp8.temporaries(f, quant, t.dims[out], "gradient")
        work += rules_te_fp8.temporaries(f, quant, t.dims[x], "input", rows=False) if keep else []
        steps = [*born(*work), *steps, *dead(*work)]
    kind = "te linear" if mega.engine is not None else "linear"
    made = t.run(Prim(kind, ins, (out,), saves, tuple(steps), ()))
    if quant is not None:
        t.end(found.made)
    return made


def _whole_name(weight: Weight) -> str:
    """The name of the layer's weights taken together: of weight3 and of local_experts.3 alike."""
    return f"{EXPERTS}.{_layer(weight)}.weight"


def _layer(weight: Weight) -> str:
    return next(part for part in weight.name.split(".") if part.startswith("linear"))


def grouped(f: Frame, spec: GroupedExperts, x: int, probs: int) -> int:
    """GroupedMLP: one function for all experts, whose weights' gradients are all made before any is added."""
    t, count = f.tape, range(spec.up.dims[0].size)
    before = len(t.prims)
    biases = [[one_of(stack, at, True) for at in count] for stack in spec.biases] or [[], []]
    inner = _product(f, [one_of(spec.up, at, True) for at in count], x, biases[0])
    first = len(t.prims)
    f.marks.append((FIRST, before, first))
    act = weighed(f, spec, inner, probs)
    last = len(t.prims)
    f.marks.append((AGAIN, first, last))
    out = _product(f, [one_of(spec.down, at, True) for at in count], act)
    f.marks.append((LAST, last, len(t.prims)))
    return _with_biases(f, biases[1], out, probs) if spec.biases else out


def _with_biases(f: Frame, biases: Sequence[Weight], x: int, probs: int) -> int:
    """Each expert's rows plus its bias times the token's probability, in the wider dtype; joined, and cast back."""
    t = f.tape
    each = [(Axis(Dim.SLOTS, rows),) for rows in rows_of(t.dims[x][0].size, len(biases))]
    rows = aten.chunk(t, x, [(*one, *t.dims[x][1:]) for one in each])
    chances = aten.chunk(t, probs, [(*one, Axis(Dim.ONE, 1)) for one in each])
    sums = []
    for bias, row, chance in zip(biases, rows, chances, strict=True):
        share = aten.mul(t, f.need(bias), chance, "weighed bias")
        sums.append(aten.add(t, row, share, "with bias"))
        t.end([share])
    joined = aten.cat(t, sums, t.dims[x], "experts' results")
    out = aten.to(t, joined, t.dtype[x])
    t.end([x, *rows, *chances, *sums] if out == joined else [x, *rows, *chances, *sums, joined])
    return out


def weighed(f: Frame, spec: GroupedExperts, x: int, probs: int) -> int:
    """The feed-forward's function times the token's probability, in the rows' dtype: in one kernel, which saves what it
    read, or one after the other, each saving what it reads."""
    t = f.tape
    dims: Dims = (t.dims[x][0], spec.down.dims[-1])
    if mega_of(f).fusions.activation and spec.gated:
        out = t.fresh(dims, t.dtype[x], True, "activation")
        return t.run(
            Prim("weighted swiglu", (x, probs), (out,), (x, probs), (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ())
        )
    act = _gated(t, x, dims) if spec.gated else aten.unary(t, "gelu", x, saves_in=True)
    chances = aten.view(t, probs, (t.dims[x][0], Axis(Dim.ONE, 1)))
    product = aten.mul(t, act, chances, "weighed")
    out = aten.to(t, product, t.dtype[x])
    t.end([x, act, product] if out != product else [x, act])
    return out


def _gated(t: Tape, x: int, dims: Dims) -> int:
    """silu of one half times the other, to which an offset is added that is 0 unless the model has one."""
    first, second = aten.chunk(t, x, [dims, dims])
    act = aten.unary(t, "silu", first, saves_in=True)
    moved = aten.shift(t, second)
    out = aten.mul(t, act, moved)
    t.end([x, first, second, act, moved])
    return out
