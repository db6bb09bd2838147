"""Fused kernels in place of a model's own norms, rotary embedding and gated product: Liger's and fms-acceleration's.

Sources: liger_kernel/ops/{rms_norm,rope,swiglu,geglu}.py (0.2.1 to 0.8.0); fms_acceleration_foak/kernels/unsloth
(0.7.4). None casts under autocast. They overwrite what they are handed: a norm the incoming gradient, a rotary
embedding its input, a gated product its two factors in backward.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32
from trainledger.facts.kernel_sets import KERNEL_SETS, LIGER_NORM, KernelSet
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.reduction import column_sum_work
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Act, Model, Multiply, Norm, NormKind, Op, Weight

HIGH_KINDS = (NormKind.RMS_ONE_PLUS, NormKind.RMS_POWER)  # times the weight in fp32
RMS_KINDS = (NormKind.RMS, NormKind.RMS_LATE_CAST, *HIGH_KINDS)


def kernel_set(software: Software) -> KernelSet | None:
    """The set that replaces this model's modules. Where two do, the one that patches the model itself, later, wins."""
    return next((KERNEL_SETS[name] for name in ("foak", "liger") if name in software.kernels), None)


def replaces(software: Software) -> bool:
    """Whether a kernel set replaces the modules of this model's layers."""
    one = kernel_set(software)
    return one is not None and software.family in one.families


def for_family(software: Software, family: str) -> Software:
    """The software as far as it touches this family: sets that do not patch it do nothing."""
    kept = {
        name
        for name in software.kernels
        if name not in KERNEL_SETS or family in KERNEL_SETS[name].families | KERNEL_SETS[name].losses
    }
    return replace(software, kernels=frozenset(kept), family=family)


def untrained(software: Software, model: Model) -> frozenset[Weight]:
    """Weights for which the kernels make no gradient, though they are trained."""
    one = kernel_set(for_family(software, model.family))
    if one is None or one.learns or model.family not in one.families:
        return frozenset()
    ops = (*model.head.ops, *(op for block in model.blocks for op in block.ops))
    specs = [op.spec for op in ops if isinstance(op.spec, Norm) and op.spec.kind in RMS_KINDS]
    return frozenset(spec.weight for spec in specs if spec.weight is not None)


def rewritten(ops: tuple[Op, ...], software: Software) -> tuple[Op, ...]:
    """The operations with each activation that feeds a product moved into it: the product reads the gate itself."""
    one = kernel_set(software)
    if one is None or not one.gated or software.family not in one.families:
        return ops
    result: list[Op] = []
    gates: dict[str, Op] = {}
    for op in ops:
        if isinstance(op.spec, Act):
            gates[op.outs[0]] = op
        elif isinstance(op.spec, Multiply) and (name := next((n for n in op.ins if n in gates), "")):
            act = gates.pop(name)
            other = next(n for n in op.ins if n != name)
            drop = tuple(dict.fromkeys((*(n for n in op.drop if n != name), *act.drop)))
            assert isinstance(act.spec, Act)
            result.append(replace(op, spec=Multiply(act.spec.kind), ins=(act.ins[0], other), drop=drop))
        else:
            result.append(op)
    return tuple(result) if not gates else ops


def rms_norm(t: Tape, software: Software, spec: Norm, x: int, weight: int) -> int:
    """Saves its input and fp32 inverse deviation of each row."""
    one = kernel_set(software)
    assert one is not None
    rows: Dims = (*t.dims[x][:-1], Axis(Dim.ONE, 1))
    learns = one.learns and t.grad[weight]
    grad = t.grad[x] or learns
    out = t.fresh(t.dims[x], t.dtype[x], grad, "output")
    rstd = t.fresh(rows, FP32, False, "inverse deviation")
    apart = software.family in one.apart
    first = Step(Code.GRAD if apart else Code.PASS, 0)
    sums = _weight_steps(t, software, spec, x, weight) if learns else ((), ())
    steps = (*sums[0], first, *sums[1])
    return t.run(Prim("rms norm", (x, weight), (out, rstd), (x, rstd) if grad else (), steps, ()))


Steps = tuple[Step, ...]


def _weight_steps(t: Tape, software: Software, spec: Norm, x: int, weight: int) -> tuple[Steps, Steps]:
    """Partial sums of the weight's gradient before the input's; then their sum, and its cast."""
    width, kept = t.dims[x][-1], t.dtype[weight]
    count, dtype = elements(t.dims[x][:-1]), FP32 if spec.kind in HIGH_KINDS else kept
    if at_least(software.liger, LIGER_NORM.by_processor):
        count, dtype = max(software.device.count, 1), FP32
    partial = aten.temporary(t, (Axis(Dim.ROWS, count), width), dtype, "partial sums of the weight's gradient")
    # the sum's result is made before the scratch memory of its kernel
    whole = () if dtype == kept else (aten.temporary(t, (width,), dtype, "weight's gradient before the cast"),)
    result = tuple(Step(Code.BORN, 0, value) for value in whole) or (Step(Code.GRAD, 1),)
    scratch = column_sum_work(t, count, width.size, software.device)
    work = tuple(Step(code, 0, value) for code in (Code.BORN, Code.DEAD) for value in scratch)
    cast = (Step(Code.GRAD, 1),) if whole else ()
    dead = tuple(Step(Code.DEAD, 0, value) for value in (partial, *whole))
    return (Step(Code.BORN, 0, partial),), (*result, *work, *cast, *dead)


def gated(t: Tape, gate: int, up: int) -> int:
    """act(gate) * up: saves both, backward writes their gradients over them. Parts of one tensor are copied first."""
    pair = [aten.copy(t, x) if _is_part(t, x) else x for x in (gate, up)]
    grad = t.grad[gate] or t.grad[up]
    out = t.fresh(t.dims[gate], t.dtype[gate], grad, "product")
    steps = tuple(Step(Code.TURN, at, t.store[x]) for at, x in enumerate(pair))
    t.run(Prim("gated product", tuple(pair), (out,), tuple(pair) if grad else (), steps, ()))
    t.end(pair)
    return out


def _is_part(t: Tape, x: int) -> bool:
    """Whether a value is a part of a larger tensor's last dim."""
    return any(prim.kind == "split" and x in prim.outs for prim in t.prims)


def rope(t: Tape, pair: tuple[int, int], tables: tuple[int, int], copied: tuple[bool, bool]) -> list[int]:
    """Queries and keys turned where they lie; `copied`: their gradients arrive head by head and are copied first."""
    outs = [t.alias(x) for x in pair]
    saves = tables if t.grad[pair[0]] or t.grad[pair[1]] else ()
    steps = tuple(Step(Code.GRAD, at) if copy else Step(Code.PASS, at, at) for at, copy in enumerate(copied))
    t.run(Prim("rotary", (*pair, *tables), tuple(outs), saves, steps, ()))
    return outs
