"""Norms of published benchmarks that models do not take: Liger's layer norm, group norms, a fused sum and norm.

Sources: liger_kernel/ops/{layer_norm,group_norm,fused_add_rms_norm,rms_norm}.py (0.2.1 to 0.8.2) and their benchmarks;
torch's group norm: aten/src/ATen/native/cuda/group_norm_kernel.cu (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16, FP32
from trainledger.facts.operator_kernels import liger_layer_norm
from trainledger.ledger import aten
from trainledger.ledger.operator_tools import ONE, SCALAR, entry, parameter, passing, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.reduction import column_sum_work
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead


def _matrix(run: OperatorRun, width: str) -> Dims:
    return (Axis(Dim.TOKENS, run.size("M")), Axis(Dim.HIDDEN, run.size(width)))


def layer_norm(run: OperatorRun) -> Written:
    """Liger's layer norm of rows, its weights in fp32: saves its input, mean and inverse deviation of each row."""
    t, dims = run.tape(), _matrix(run, "N")
    x = entry(t, "x", dims, run.element)
    pair = tuple(parameter(t, f"norm.{name}", dims[1:], FP32) for name in ("weight", "bias"))
    rows = (dims[0],)
    y = t.fresh(dims, run.element, True, "output")
    statistics = [t.fresh(rows, run.element, False, name) for name in ("mean", "inverse deviation")]
    steps = _layer_norm_steps(t, run, (x, *pair))
    t.run(Prim("layer norm", (x, *pair), (y, *statistics), (x, *pair, *statistics), steps, ()))
    t.end(statistics)
    return Written(t, (x,), pair, (y,))


def _layer_norm_steps(t: Tape, run: OperatorRun, ins: tuple[int, ...]) -> tuple[Step, ...]:
    """The input's gradient, and those of weight and bias as the release makes them."""
    row, kept, width = liger_layer_norm(run.release), t.dtype[ins[1]], t.dims[ins[1]]
    places = range(1, len(ins))
    if not row.partial:
        if kept != BF16:  # which the kernel cannot add to in place
            return tuple(Step(Code.GRAD, at) for at in range(len(ins)))
        sums = several(t, width, FP32, *("sum before the cast" for _ in places))
        return (Step(Code.GRAD, 0), *born(*sums), *(Step(Code.GRAD, at) for at in places), *dead(*sums))
    dtype = FP32 if row.wide else kept
    sums = several(t, (Axis(Dim.ROWS, t.device.count), *width), dtype, *("partial sums" for _ in places))
    first = (*born(*sums), Step(Code.GRAD, 0)) if row.wide else (Step(Code.GRAD, 0), *born(*sums))
    made = [step for at in places for step in _summed(t, at, ins[at], dtype)]
    return (*first, *made, *dead(*sums))


def _summed(t: Tape, at: int, weight: int, dtype: object) -> tuple[Step, ...]:
    """A weight's gradient from its partial sums, cast where they are in another dtype."""
    width = t.dims[weight]
    scratch = passing(*column_sum_work(t, t.device.count, width[0].size, t.device))
    if dtype == t.dtype[weight]:
        return (Step(Code.GRAD, at), *scratch)
    whole = several(t, width, FP32, "sum before the cast")
    return (*born(*whole), *scratch, Step(Code.GRAD, at), *dead(*whole))


def group_norm(run: OperatorRun) -> Written:
    """A norm of groups of channels, of `M` samples with `C` channels of `H` elements each; weights in fp32."""
    t = run.tape()
    samples, channels = Axis(Dim.BATCH, run.size("M")), Axis(Dim.COLUMNS, run.size("C"))
    groups = Axis(Dim.ROWS, channels.size // run.size("channels_per_group"))
    x = entry(t, "x", (samples, channels, Axis(Dim.HIDDEN, run.size("H"))), run.element)
    pair = tuple(parameter(t, f"norm.{name}", (channels,), FP32) for name in ("weight", "bias"))
    ins, liger = (x, *pair), run.implementation == "liger"
    y = t.fresh(t.dims[x], run.element, True, "output")
    kept = run.element if liger else FP32
    statistics = [t.fresh((samples, groups), kept, False, name) for name in ("mean", "inverse deviation")]
    gradients = tuple(Step(Code.GRAD, at) for at in range(len(ins)))
    work: tuple[int, ...] = ()
    if not liger:
        work = several(t, (samples, channels), FP32, "scale of each channel", "shift of each channel")
        inside = several(t, (samples, channels), FP32, "sums of products", "sums of gradients", "first coefficient")
        inside += several(t, (samples, groups), FP32, "second coefficient", "third coefficient")
        gradients = (*gradients, *passing(*inside))
    t.run(Prim("group norm", ins, (y, *statistics), (*ins, *statistics), gradients, work))
    t.end(statistics)
    return Written(t, (x,), pair, (y,))


def _pair(t: Tape, run: OperatorRun) -> tuple[int, int]:
    dims = _matrix(run, "H")
    return entry(t, "x", dims, run.element), entry(t, "residual", dims, run.element)


def fused_add_rms_norm(run: OperatorRun) -> Written:
    """A residual sum and its norm from one kernel, both of them results; both inputs are given the same gradient."""
    t = run.tape()
    pair = _pair(t, run)
    dims = t.dims[pair[0]]
    weight = parameter(t, "norm.weight", dims[1:], FP32)
    outs = tuple(t.fresh(dims, run.element, True, name) for name in ("norm", "sum"))
    rstd = t.fresh((dims[0], ONE), FP32, False, "inverse deviation")
    gradient = several(t, dims, run.element, "gradient of both inputs")
    steps = _with_weight(t, 1 + 1, weight, (*born(*gradient), *(Step(Code.GIVE, at, *gradient) for at in (0, 1))))
    t.run(Prim("add, rms norm", (*pair, weight), (*outs, rstd), (outs[1], weight, rstd), steps, ()))
    t.end([rstd])
    return Written(t, pair, (weight,), outs)


def _with_weight(t: Tape, at: int, weight: int, inputs: tuple[Step, ...]) -> tuple[Step, ...]:
    """Partial sums of the weight's gradient, the steps that make the inputs', and the weight's own."""
    sums = several(t, (Axis(Dim.ROWS, t.device.count), *t.dims[weight]), FP32, "partial sums")
    return (*born(*sums), *inputs, *_summed(t, at, weight, FP32), *dead(*sums))


def add_then_rms_norm(run: OperatorRun) -> Written:
    """A sum in fp32, Liger's norm of it, which does not write over gradients, and one more weight by hand."""
    t = run.tape()
    pair = _pair(t, run)
    total = aten.add(t, aten.to(t, pair[0], FP32), aten.to(t, pair[1], FP32))
    dims = t.dims[total]
    inner, outer = (parameter(t, f"{name}.weight", dims[1:], FP32) for name in ("rms_norm", "norm"))
    normed = t.fresh(dims, FP32, True, "norm")
    rstd = t.fresh((dims[0], ONE), FP32, False, "inverse deviation")
    steps = _with_weight(t, 1, inner, (Step(Code.GRAD, 0),))
    t.run(Prim("rms norm", (total, inner), (normed, rstd), (total, inner, rstd), steps, ()))
    low = aten.to(t, normed, run.element)
    y = aten.mul(t, outer, low)
    back = aten.to(t, total, run.element)
    t.end([normed, low, rstd])
    # the benchmark's count of weights holds both of this module; the second one's gradient is there besides
    return Written(t, pair, (outer,), (y, back), (FP32.bytes_of(dims[1].size),))


def megatron_rms_norm(run: OperatorRun) -> Written:
    """A norm of `S` x `B` rows whose sum is the loss: kernels first copy the gradient, one number seen everywhere."""
    t = run.tape()
    dtype = run.element if run.dtype else BF16  # which the script makes
    dims = (Axis(Dim.TOKENS, run.size("S", "B")), Axis(Dim.HIDDEN, run.size("H")))
    x = entry(t, "x", dims, dtype)
    weight = parameter(t, "norm.weight", dims[1:], dtype)
    y, rstd = t.fresh(dims, dtype, True, "norm"), t.fresh((dims[0], ONE), FP32, False, "inverse deviation")
    whole = several(t, dims, dtype, "contiguous gradient")
    steps: tuple[Step, ...] = (Step(Code.GRAD, 0), Step(Code.GRAD, 1))
    if run.implementation == "liger":
        steps = _with_weight(t, 1, weight, (Step(Code.GRAD, 0),))
    t.run(Prim("rms norm", (x, weight), (y, rstd), (x, weight, rstd), (*born(*whole), *steps, *dead(*whole)), ()))
    t.end([rstd])
    total = t.fresh(SCALAR, dtype, True, "sum")
    t.run(Prim("sum", (y,), (total,), (), (Step(Code.SEEN, 0),), ()))
    return Written(t, (x,), (weight,), (total,), kept=(y,))


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("layer_norm", "liger"): layer_norm,
    ("group_norm", "liger"): group_norm,
    ("group_norm", "huggingface"): group_norm,
    **{("megatron_rms_norm", name): megatron_rms_norm for name in ("liger", "torch", "megatron")},
    ("fused_add_rms_norm", "liger_fused_add_rms_norm"): fused_add_rms_norm,
    ("fused_add_rms_norm", "liger_rms_norm"): add_then_rms_norm,
}
