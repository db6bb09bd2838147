"""Attention kernels without a score matrix on a tape: flash, flash-attn, cuDNN, flex and the memory-efficient one.

Each saves queries, keys, values, its output and the logsumexp of every row in fp32. Sources: aten/src/ATen/native/
transformers/attention.cpp and cuda/attention{,_backward}.cu, flash_api.cpp, mem_eff_attention (v2.4 to v2.13).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import BOOL, FP32, INT64, UINT8, DType
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.kernels_fused import EFFICIENT, FLASH, RANDOM
from trainledger.facts.versions import at_least
from trainledger.ledger.aten import copy, part, temporary
from trainledger.ledger.nn import lowered
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.lines.kernel_work import Shape, efficient_workspace, flash_forward, up
from trainledger.model.program import Attention


@dataclass(frozen=True, slots=True)
class Site:
    """Where attention is called: the kernel, torch's release and the architecture (empty: newest, unknown), and whether
    PyTorch's flash kernel may split the keys, as it does where nothing is dropped from scores."""

    kernel: Kernel
    torch: str = ""
    architecture: str = ""
    splits: bool = False


def rows_of(dims: Dims, rows: int = 0) -> Dims:
    """[batch, heads, sequence] of queries [batch, sequence, heads, head dim]; `rows` in place of the sequence."""
    return (dims[0], dims[2], Axis(Dim.SEQUENCE, rows or dims[1].size))


def widened(t: Tape, x: int, heads: int) -> int:
    """Keys or values seen by every query head, without a copy; backward sums over the heads that share one."""
    dims = (*t.dims[x][:-2], Axis(Dim.HEADS, heads), t.dims[x][-1])
    if t.dims[x][-2].size == heads:
        return x
    return t.run(Prim("expand", (x,), (t.alias(x, dims),), (), (Step(Code.GRAD, 0),), ()))


def fused(t: Tape, qkv: tuple[int, int, int], spec: Attention, mask: int | None, site: Site) -> int:
    """The kernel's result, [batch, sequence, heads, head dim], token by token."""
    mask = mask if mask is None or t.dtype[mask] == BOOL else lowered(t, mask)  # the last argument is cast first
    narrow = t.dims[qkv[2]][-1].size
    cropped = site.kernel is Kernel.PACKAGE and narrow != t.dims[qkv[0]][-1].size
    if cropped:
        qkv = (*qkv[:2], _padded(t, qkv[2], Code.GRAD, t.dims[qkv[0]][-1].size))
    v, k, q = (lowered(t, x) for x in reversed(qkv))
    if site.kernel is Kernel.EFFICIENT:
        k, v = widened(t, k, spec.heads), widened(t, v, spec.heads)
    width, arguments = t.dims[q][-1].size, (*qkv, q, k, v) if cropped else (q, k, v)
    padded = site.kernel in (Kernel.FLASH, Kernel.PACKAGE) and bool(width % FLASH.pad)
    if padded:
        # flash-attn pads inside its own autograd function, and returns views of padded gradients
        code = Code.GRAD if site.kernel is Kernel.FLASH else Code.PASS
        q, k, v = (_padded(t, x, code, up(width, FLASH.pad)) for x in (q, k, v))
    bias = None if mask is None else _bias(t, mask, t.dtype[q], site)
    out = _call(t, (q, k, v), bias, site)
    if padded:
        out = part(t, out, (*t.dims[out][:-1], Axis(Dim.HEAD_DIM, width)))
    if cropped:
        out = part(t, out, (*t.dims[out][:-1], Axis(Dim.HEAD_DIM, narrow)))
    t.end([*arguments, q, k, v, *([] if bias is None else [bias])])
    # its result has the queries' layout, except that the memory-efficient kernel writes token by token
    laid = spec.head_first and site.kernel is not Kernel.EFFICIENT
    return copy(t, out) if laid or padded or cropped else out


def _padded(t: Tape, x: int, code: Code, width: int) -> int:
    """A copy with this head dim; backward copies or views what is not padding."""
    dims = (*t.dims[x][:-1], Axis(Dim.HEAD_DIM, width))
    out = t.fresh(dims, t.dtype[x], t.grad[x], "padded")
    return t.run(Prim("pad", (x,), (out,), (), (Step(code, 0),), ()))


def additive(t: Tape, mask: int, dtype: DType) -> int:
    """A bool mask written out as what is added to scores: zero where it holds, else minus infinity."""
    ends = [t.run(Prim("scalar", (), (t.fresh((), dtype, False, name),), (), (), ())) for name in ("zero", "infinity")]
    out = t.fresh(t.dims[mask], dtype, False, "additive mask")
    return t.run(Prim("where", (mask, *ends), (out,), (), (), ()))


def _bias(t: Tape, mask: int, dtype: DType, site: Site) -> int:
    """A mask as the addend that the kernel takes: a bool one is written out in the queries' dtype at every call."""
    bias = additive(t, mask, dtype) if t.dtype[mask] == BOOL else mask
    dims = t.dims[mask]
    if site.kernel is not Kernel.EFFICIENT:
        return bias
    aligned = EFFICIENT.aligned if at_least(site.torch, EFFICIENT.since) else EFFICIENT.old_aligned
    if not dims[-1].size % aligned:
        return bias
    keys = Axis(Dim.KEY_SEQUENCE, up(dims[-1].size, aligned))
    wide = t.fresh((*dims[:-1], keys), t.dtype[bias], False, "padded mask")
    return t.run(Prim("pad", (bias,), (wide,), (), (), ()))


def _call(t: Tape, qkv: tuple[int, int, int], bias: int | None, site: Site) -> int:
    q, k, v = qkv
    dims = t.dims[q]
    grad = t.grad[q] or t.grad[k] or t.grad[v]
    out = t.fresh((*dims[:-1], t.dims[v][-1]), t.dtype[q], grad, "output")
    rows = up(dims[1].size, EFFICIENT.statistics) if site.kernel is Kernel.EFFICIENT else 0
    lse = t.fresh(rows_of(dims, rows), FP32, False, "logsumexp")
    state = RANDOM.get(site.kernel)
    parts = state.parts if state and at_least(site.torch, state.since) else ()
    random = [t.fresh((Axis(Dim.ELEMENTS, size),), INT64, False, f"random state {at}") for at, size in enumerate(parts)]
    outs = (*random, out, lse) if state and state.first else (out, lse, *random)
    masks = () if bias is None else (bias,)
    saves = (q, k, v, *masks, out, lse, *random) if grad else ()
    work = _forward_work(t, (q, v), site) if t.dtype[q] != FP32 else ()
    t.run(Prim("sdpa", (q, k, v, *masks), outs, saves, _backward(t, qkv, site), work))
    _pieces(t, (q, k), site)
    return out


def _pieces(t: Tape, both: tuple[int, int], site: Site) -> None:
    """What the flash kernel makes after its result, and lets go as it returns."""
    if site.kernel is not Kernel.FLASH or not site.splits:
        return
    (batch, rows, heads, head), keys = (axis.size for axis in t.dims[both[0]]), t.dims[both[1]]
    shape = Shape(batch, heads, keys[2].size, rows, keys[1].size, head, t.dtype[both[0]])
    outs = [
        t.fresh((Axis(Dim.ELEMENTS, one.elements),), one.dtype, False, f"kernel: {one.name}")
        for one in flash_forward(shape, site.torch, t.device.count)
    ]
    if outs:
        t.run(Prim("pieces", (), tuple(outs), (), (), ()))


def _forward_work(t: Tape, both: tuple[int, int], site: Site) -> tuple[int, ...]:
    queries, values = (t.dims[x] for x in both)
    if site.kernel is not Kernel.EFFICIENT or max(queries[-1].size, values[-1].size) <= EFFICIENT.accumulates:
        return ()
    return (temporary(t, (*queries[:-1], values[-1]), FP32, "kernel: output sums"),)


def _backward(t: Tape, qkv: tuple[int, int, int], site: Site) -> tuple[Step, ...]:
    """Gradients of queries, keys and values, then what is alive only inside the kernel."""
    q = qkv[0]
    dims = t.dims[q]
    grads = tuple(Step(Code.GRAD, at) for at in range(len(qkv)))
    if site.kernel is Kernel.EFFICIENT:
        return (*grads, *_efficient_work(t, qkv, site))
    if site.kernel is Kernel.FLEX:
        names = [temporary(t, rows_of(dims), FP32, "kernel: delta")]
    elif site.kernel is Kernel.CUDNN:
        names = [cudnn_workspace(t, dims)]
    else:
        names = _flash_work(t, qkv, site)
    return (*grads, *(Step(Code.BORN, 0, one) for one in names), *(Step(Code.DEAD, 0, one) for one in names))


def cudnn_workspace(t: Tape, queries: Dims) -> int:
    """What cuDNN's backward works in, one tensor: sums of the queries' gradients and of the softmax. Only what its
    frontend asks for is known; its engines may ask for more. Source: cuDNN frontend, CompositeSDPABackwardNode,
    collect_tensors_in_workspace_node (scaled_dot_product_flash_attention.h)."""
    sums = (*queries[:-1], Axis(queries[-1].dim, queries[-1].size + 1))
    return temporary(t, sums, FP32, "kernel: sums of query gradients and of softmax", Basis.ASSUMED)


def _flash_work(t: Tape, qkv: tuple[int, int, int], site: Site) -> list[int]:
    q, k, _ = qkv
    batch, sequence, heads, head = t.dims[q]
    rows = up(sequence.size, FLASH.rows)
    newer = at_least(site.torch, FLASH.since) or site.kernel is Kernel.PACKAGE
    step = FLASH.wide_step if head.size > FLASH.wide and newer else FLASH.step
    sums = (batch, Axis(Dim.SEQUENCE, rows), heads, Axis(Dim.HEAD_DIM, up(head.size, step)))
    names = [
        temporary(t, rows_of(t.dims[q], rows), FP32, "kernel: softmax_d"),
        temporary(t, sums, FP32, "kernel: sums of query gradients"),
    ]
    if t.dims[k][-2].size != heads.size:
        wide = (batch, t.dims[k][1], heads, head)
        for name in ("key", "value"):
            names.append(temporary(t, wide, t.dtype[q], f"kernel: {name} gradients by query head"))
    return names


def _efficient_work(t: Tape, qkv: tuple[int, int, int], site: Site) -> tuple[Step, ...]:
    """Delta of every row and the workspace. In fp32 delta is summed from a product of output and gradient."""
    q, k, v = qkv
    dims, keys, value = t.dims[q], t.dims[k][1].size, t.dims[v][-1]
    delta = temporary(t, rows_of(dims), FP32, "kernel: delta")
    batch, sequence, heads, head = (axis.size for axis in dims)
    shape = Shape(batch, heads, heads, sequence, keys, head, t.dtype[q], value.size)
    size = Axis(Dim.ELEMENTS, efficient_workspace(shape, site.architecture))
    space = temporary(t, (size,), UINT8, "kernel: workspace")
    made: tuple[Step, ...] = (Step(Code.BORN, 0, delta),)
    if t.dtype[q] == FP32:
        product = temporary(t, (*dims[:-1], value), FP32, "kernel: output times gradient")
        sums = temporary(t, rows_of(dims), FP32, "kernel: delta by token")
        made = (
            Step(Code.BORN, 0, product), Step(Code.BORN, 0, sums), *made, Step(Code.DEAD, 0, product),
            Step(Code.DEAD, 0, sums),
        )  # fmt: skip
    return (*made, Step(Code.BORN, 0, space), Step(Code.DEAD, 0, space), Step(Code.DEAD, 0, delta))
