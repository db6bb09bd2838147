"""Transformer Engine's modules as primitives (`transformer_impl: transformer_engine`).

A norm and the linear layer after it are one function of autograd. Sources: transformer_engine/pytorch/module/
{linear,layernorm_linear}.py, ops/basic/{layer_norm,rmsnorm}.py (2.5 to 2.17); megatron/core/extensions/
transformer_engine.py (0.14 to 0.19).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, elements, stretched
from trainledger.facts.dtypes import FP32
from trainledger.facts.transformer_engine import CHANGES
from trainledger.facts.versions import at_least
from trainledger.ledger import aten, mega_mla, mega_shared, rules_megatron, rules_te_attention, rules_te_fp8
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega import Engine
from trainledger.ledger.mega_embedding import cut
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.rules_te_fp8 import Read
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.operations_megatron import Along, Core, Normalise, NormalisedParallel, Parallel
from trainledger.model.program import Op, Role

BORDERS = (Role.EMBEDDING, Role.HEAD)


def joined(ops: tuple[Op, ...], software: Software) -> tuple[Op, ...]:
    """The operations with each norm that is read by the column-parallel layer after it alone made one with it."""
    ops = mega_shared.overlapped(ops, software.mega)
    if software.mega is None or software.mega.engine is None:
        return ops
    found: list[Op] = []
    for at, op in enumerate(ops):
        before = found[-1] if found else None
        if before is not None and _feeds(before, op, ops[at + 1 :]):
            assert isinstance(before.spec, Normalise)
            assert isinstance(op.spec, Parallel)
            found[-1] = Op(
                op.name, NormalisedParallel(before.spec, op.spec), before.ins, op.outs, op.dims,
                (*before.drop, *(name for name in op.drop if name not in before.outs)),
            )  # fmt: skip
            continue
        found.append(op)
    return tuple(found)


def _feeds(norm: Op, linear: Op, rest: tuple[Op, ...]) -> bool:
    if not isinstance(norm.spec, Normalise) or norm.ins == norm.outs or norm.outs != linear.ins:
        return False
    if not isinstance(linear.spec, Parallel) or linear.spec.along is not Along.COLUMN or not _own(linear.spec):
        return False
    name = norm.outs[0]
    for op in rest:
        if name in op.ins:
            return False
        if name in op.outs:
            break
    return True


def _own(spec: Parallel) -> bool:
    """Whether the layer is Transformer Engine's: the output layer stays Megatron's."""
    return spec.weight.role not in BORDERS


def apply(f: Frame, op: Op, ins: list[int]) -> list[int]:
    """The operation's primitives on the tape; returns the values of its `outs`."""
    match op.spec:
        case NormalisedParallel(norm_spec, linear):
            return [column(f, linear, ins[0], op.dims, norm_spec)]
        case Parallel() if _own(op.spec):
            return [_linear(f, op.spec, ins[0], op.dims)]
        case Normalise():
            return [norm(f, op.spec, ins[0])]
        case Core(dropout):
            return [rules_te_attention.core(f, dropout, (ins[0], ins[1], ins[2]), op.dims)]
        case _:
            return rules_megatron.apply(f, op, ins)


def _linear(f: Frame, spec: Parallel, x: int, dims: Dims) -> int:
    """A layer without a norm of its own."""
    ranks = 1 if spec.expert else rules_megatron.ranks_of(f, spec)
    if engine_of(f).quant is not None:
        made = rules_te_fp8.row if spec.along is Along.ROW else rules_te_fp8.column
        return made(f, spec, x, dims, ranks)
    if spec.along is Along.WHOLE:
        return mega_mla.whole(f, spec, x, dims)
    return row(f, spec, x, dims) if spec.along is Along.ROW else column(f, spec, x, dims)


def engine_of(f: Frame) -> Engine:
    """How Transformer Engine runs."""
    engine = mega_of(f).engine
    assert engine is not None
    return engine


def _statistics(t: Tape, x: int, spec: Normalise) -> tuple[int, ...]:
    """One fp32 number a row: the inverse deviation, and with a bias the mean."""
    rows = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    names = ("mean", "inverse deviation") if spec.bias is not None else ("inverse root mean square",)
    return tuple(t.fresh(rows, FP32, False, name) for name in names)


def norm(f: Frame, spec: Normalise, x: int) -> int:
    """A norm of its own: reads its input contiguous, which it saves."""
    t = f.tape
    read = contiguous(t, x)
    ins = (read, *(f.need(one) for one in (spec.weight, spec.bias) if one is not None))
    out = t.fresh(t.dims[x], t.dtype[x], True, "output")
    statistics = _statistics(t, x, spec)
    steps = tuple(Step(Code.GRAD, at) for at in range(len(ins)))
    t.run(Prim("te norm", ins, (out, *statistics), (read, *statistics), steps, ()))
    if read != x:
        t.end([read])
    return out


def contiguous(t: Tape, x: int) -> int:
    """The value itself, or a copy where it is a part of a larger tensor."""
    store = t.store[x]
    whole = store < 0 or elements(t.dims[x]) == elements(t.storages[store].dims)
    return x if whole else aten.copy(t, x)


def column(f: Frame, spec: Parallel, x: int, dims: Dims, normed: Normalise | None = None) -> int:
    """A layer spread over its outputs, after a norm of its own where there is one. Of a sequence that is spread its
    input is saved as a part, and gathered for the product in each direction."""
    t, ranks = f.tape, 1 if spec.expert else rules_megatron.ranks_of(f, spec)
    front = t.dims[x][: -len([one for one in t.dims[x] if one.dim not in (Dim.BATCH, Dim.SEQUENCE)])]
    ins = [x, f.need(spec.weight)]
    if spec.bias is not None and not spec.later:
        ins.append(f.need(spec.bias))
    linear = len(ins)
    read, statistics, quant = Read((x,), (x,)), tuple[int, ...](), engine_of(f).quant
    if normed is not None:
        ins += [f.need(one) for one in (normed.weight, normed.bias) if one is not None]
        statistics = _statistics(t, x, normed)
        read = _normalised(f, x, ranks > 1, statistics)
    if quant is not None:
        work = rules_te_fp8.gathered(f, quant, t.dims[x], ranks)
    else:
        work = (_whole(f, x, ranks, "gathered input"),) if ranks > 1 else ()
    out = t.fresh((*stretched(front, ranks), *dims), t.dtype[x], True, "output")
    saves = (x, ins[1]) if normed is None else (x, *read.saved, *statistics, ins[1])
    steps = _column_back(f, (x, read, out), ranks, (linear, len(ins)))
    made = t.run(Prim("te linear", tuple(ins), (out,), saves, steps, work))
    t.end([*read.made, *statistics] if normed is not None else [])
    return made


def _normalised(f: Frame, x: int, gathers: bool, statistics: tuple[int, ...]) -> Read:
    t, quant = f.tape, engine_of(f).quant
    if quant is not None:
        return rules_te_fp8.normalised(f, quant, x, gathers, statistics)
    out = t.fresh(t.dims[x], t.dtype[x], False, "normalised")
    t.run(Prim("te norm", (x,), (out, *statistics), (), (), ()))
    return Read((out,), (out,))


def _whole(f: Frame, x: int, ranks: int, name: str) -> int:
    return aten.temporary(f.tape, stretched(f.tape.dims[x], ranks), f.tape.dtype[x], name)


def _column_back(f: Frame, made: tuple[int, Read, int], ranks: int, counts: tuple[int, int]) -> tuple[Step, ...]:
    """The input's gradient, whole and then its part; the weight's; the norm's own backward.

    `made`: the input, as it was read, and the result; `counts`: inputs of the linear layer, and of both."""
    t, (x, read, out) = f.tape, made
    (linear, every), quant = counts, engine_of(f).quant
    learned = tuple(Step(Code.GRAD, at) for at in range(1 + mega_of(f).added, linear))
    alone = every == linear
    first = Step(Code.GRAD, 0)
    spread: tuple[int, ...] = ()
    if quant is not None:
        slopes = rules_te_fp8.temporaries(f, quant, t.dims[out], "gradient")
        spread = (*slopes, *rules_te_fp8.spread_work(f, quant, x, ranks))
    elif ranks > 1:
        spread = (_whole(f, x, ranks, "gathered input"), _whole(f, x, ranks, "whole gradient of the input"))
    born = tuple(Step(Code.BORN, 0, one) for one in spread)
    dead = tuple(Step(Code.DEAD, 0, one) for one in spread)
    if alone:
        return (*born, first, *learned, *dead)
    slope = aten.temporary(t, t.dims[x], t.dtype[x], "gradient of the norm's output")
    clears = at_least(engine_of(f).release, CHANGES.clears)
    clear = tuple(Step(Code.CLEAR, 0, t.store[one]) for one in read.saved if clears)
    scales = tuple(Step(Code.GRAD, at) for at in range(linear, every))
    return (
        *born, Step(Code.BORN, 0, slope), *learned, *dead, *clear, first, *scales, Step(Code.DEAD, 0, slope),
    )  # fmt: skip


def row(f: Frame, spec: Parallel, x: int, dims: Dims) -> int:
    """A layer spread over its inputs: its result is summed in place, or leaves each rank its part of the sequence."""
    t, mega = f.tape, mega_of(f)
    ranks = 1 if spec.expert else rules_megatron.ranks_of(f, spec)
    front = tuple(one for one in t.dims[x] if one.dim in (Dim.BATCH, Dim.SEQUENCE)) or t.dims[x][:-1]
    whole = (*front, *dims)
    out = t.fresh(cut(whole, ranks), t.dtype[x], True, "output")
    steps: tuple[Step, ...] = (Step(Code.GRAD, 0), *(() if mega.added else (Step(Code.GRAD, 1),)))
    work: tuple[int, ...] = ()
    if ranks > 1:
        work = (aten.temporary(t, whole, t.dtype[x], "sum before its part is taken"),)
        gathered = aten.temporary(t, whole, t.dtype[x], "gathered gradient")
        steps = (Step(Code.BORN, 0, gathered), *steps, Step(Code.DEAD, 0, gathered))
    ins = (x, f.need(spec.weight))
    return t.run(Prim("te linear", ins, (out,), ins, steps, work))
