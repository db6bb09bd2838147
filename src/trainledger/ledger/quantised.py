"""A quantised linear layer on a tape, by the kind of its product.

Sources: bitsandbytes/nn/modules.py and autograd/_functions.py (0.41.1 to 0.50.2); auto_gptq/nn_modules/qlinear (0.7.1);
awq/modules/linear/gemm.py (0.2.7.post3); transformers/integrations/finegrained_fp8.py (5.24.0).
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import BOOL, FP8, FP16, FP32, INT8, INT32, INT64, DType
from trainledger.facts.packed_rows import Shape, reads_packed
from trainledger.facts.quantization import BNB_4, BNB_INT8, FP8_ROWS, Product
from trainledger.facts.torchtune import UNPACKING
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead
from trainledger.model.program import Packing
from trainledger.model.quantised import blocks_of

UNPACKED = "torchao"


class Base(NamedTuple):
    """A quantised layer: its input, its result's dims, its weight's and its bias's values, and how it is packed."""

    x: int
    dims: Dims
    weight: int
    bias: int | None
    packing: Packing


def linear(t: Tape, base: Base) -> int:
    """The layer's result, in its input's dtype."""
    match base.packing.kind.product:
        case Product.INT8:
            return _int8(t, base)
        case Product.FP8:
            return _fp8(t, base)
        case _:
            return _dequantised(t, base)


def weight_of(t: Tape, base: Base) -> int:
    """The whole weight, dequantised in the dtype that was quantised, for a moment."""
    out = t.fresh(t.dims[base.weight], base.packing.loaded, False, "dequantised weight")
    return t.run(Prim("dequantize", (), (out,), (), (), scales(t, base)))


def _dequantised(t: Tape, base: Base) -> int:
    """x W with a weight that is made for each product; in backward it is made again."""
    own, low = t.dtype[base.x], base.packing.compute
    x = aten.to(t, base.x, low)
    fused = base.packing.kind.package == BNB_4.package
    bias = None if base.bias is None else aten.to(t, base.bias, low)
    weight, named = _made(t, base, x)
    ins = (x, *weight, *((bias,) if bias is not None and fused else ()))
    out = t.fresh(base.dims, low, any(t.grad[one] for one in ins), "output")
    t.run(Prim("linear", ins, (out,), _saves(t, base, x), (*_bias(t, ins), *_back(t, base, low)), ()))
    t.end(named)
    if fused and t.grad[x] and not _reached(base, BNB_4.lets_go):
        t.attached.append(x)
    if bias is not None and not fused:
        out = aten.add(t, out, bias)
    result = aten.to(t, out, own)
    if result != out:
        t.end([x])
    return result


def _bias(t: Tape, ins: tuple[int, ...]) -> tuple[Step, ...]:
    """The gradient of a fused bias that is trained comes first."""
    last = len(ins) - 1
    return (Step(Code.GRAD, last),) if last and ins[last] in t.leaf and t.grad[ins[last]] else ()


def _saves(t: Tape, base: Base, x: int) -> tuple[int, ...]:
    """What goes through save_for_backward: nothing in bitsandbytes, the packed tensors elsewhere; AWQ's input too."""
    if base.packing.kind.package == BNB_4.package or not t.grad[x]:
        return ()
    return (x, base.weight) if base.packing.kind.product is Product.KEEP_INPUT else (base.weight,)


def _made(t: Tape, base: Base, x: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dequantised weight that the product reads, none where a kernel reads the packed one; and what the function
    that makes both names: bitsandbytes' scales before and after their mean is added, since one function has it all."""
    kind, inputs = base.packing.kind, t.dims[base.weight][-1].size
    sides = elements(t.dims[x]) // inputs, elements(t.dims[base.weight]) // inputs, inputs
    shape = Shape(*sides, base.packing.compute, t.device.architecture, t.device.count)
    if reads_packed(kind.package, base.packing.release, shape):
        return (), ()
    bnb = kind.package == BNB_4.package
    if not bnb or _reached(base, BNB_4.direct):
        named = _named_scales(t, base) if bnb and base.packing.double else ()
        out = t.fresh(t.dims[base.weight], base.packing.compute, False, "dequantised weight")
        return (t.run(Prim("dequantize", named, (out,), (), (), () if named else scales(t, base))),), named
    return (aten.to(t, weight_of(t, base), base.packing.compute),), ()


def _named_scales(t: Tape, base: Base) -> tuple[int, ...]:
    blocks = (Axis(Dim.ELEMENTS, blocks_of(base.packing, elements(t.dims[base.weight]))),)
    spread = t.run(Prim("dequantize", (), (t.fresh(blocks, FP32, False, "scales in fp32"),), (), (), ()))
    return spread, t.run(Prim("add", (spread,), (t.fresh(blocks, FP32, False, "scales, mean added"),), (), (), ()))


def _reached(base: Base, since: str) -> bool:
    return at_least(base.packing.release or None, since)


def scales(t: Tape, base: Base) -> tuple[int, ...]:
    """The blocks' scales in fp32, where they are quantised themselves; of torchao all that it unpacks by."""
    if base.packing.kind.package == UNPACKED:
        return _unpacking(t, base)
    if not base.packing.double:
        return ()
    blocks = (Axis(Dim.ELEMENTS, blocks_of(base.packing, elements(t.dims[base.weight]))),)
    return (aten.temporary(t, blocks, FP32, "scales in fp32"),)


def _unpacking(t: Tape, base: Base) -> tuple[int, ...]:
    """Indices and entries of both halves of a weight's elements."""
    half = (Axis(Dim.ELEMENTS, -(-elements(t.dims[base.weight]) // UNPACKING.halves)),)
    parts = [(INT64, "indices")] * UNPACKING.indices + [(base.packing.compute, "entries")] * UNPACKING.entries
    return tuple(
        aten.temporary(t, half, dtype, f"{name} of half a weight")
        for _ in range(UNPACKING.halves)
        for dtype, name in parts
    )


def _back(t: Tape, base: Base, low: DType) -> tuple[Step, ...]:
    """The weight is made again, times the gradient; AWQ copies it for every sequence of the batch."""
    dims, packing = t.dims[base.weight], base.packing
    made = scales(t, base)
    whole = aten.temporary(t, dims, packing.loaded if packing.kind.package == BNB_4.package else low, "weight, again")
    steps = [*born(*made), Step(Code.BORN, 0, whole), *dead(*made)]
    if packing.kind.product is Product.KEEP_INPUT:
        copies = aten.temporary(t, (base.dims[0], *dims), low, "weight of every sequence")
        return (*steps, Step(Code.BORN, 0, copies), Step(Code.GRAD, 0), *dead(copies, whole))
    if packing.kind.package == BNB_4.package and packing.loaded != low:
        cast = aten.temporary(t, dims, low, "weight in the compute dtype, again")
        steps += [Step(Code.BORN, 0, cast), Step(Code.DEAD, 0, whole)]
        whole = cast
    return (*steps, Step(Code.GRAD, 0), Step(Code.DEAD, 0, whole))


def _int8(t: Tape, base: Base) -> int:
    """LLM.int8() without columns of outliers, which depend on the data; the graph's node holds the input, and in older
    releases its transposed codes too, as attributes that no checkpoint drops."""
    x, own, grad = base.x, t.dtype[base.x], t.grad[base.x]
    older = not _reached(base, BNB_INT8.since)
    high = aten.to(t, x, FP16)
    names = ("codes of the input", "transposed codes of the input")
    codes = [t.fresh(t.dims[x], INT8, False, name) for name in (names if older else names[:1])]
    size = aten.temporary(t, t.dims[x], FP16, "size of the input's elements")
    large = aten.temporary(t, t.dims[x], BOOL, "where outliers are")
    t.run(Prim("quantize rows", (high,), tuple(codes), (), (), (size, large)))
    total = t.fresh(base.dims, INT32, False, "product in int32")
    t.run(Prim("int8 product", (codes[0],), (total,), (), (), ()))
    half = t.fresh(base.dims, FP16, False, "product in fp16")
    t.run(Prim("scale rows", (total,), (half,), (), (), ()))
    out = t.fresh(base.dims, own, grad, "output")
    bias = () if base.bias is None else (base.bias,)
    t.run(Prim("linear", (x, half, *bias), (out,), (), _int8_back(t, base, older), ()))
    t.end(codes)
    if grad:
        t.attached += [x, *codes[1:]]
    return out


def _int8_back(t: Tape, base: Base, older: bool) -> tuple[Step, ...]:
    low = t.dtype[base.x]
    made = [aten.temporary(t, t.dims[base.weight], low, "weight from its codes")]
    if older:  # the gradient is quantised along rows and columns
        made.append(aten.temporary(t, base.dims, FP16, "gradient in fp16"))
        made += [aten.temporary(t, base.dims, INT8, f"{name} of the gradient") for name in ("codes", "turned codes")]
    return (*born(*made), Step(Code.GRAD, 0), *dead(*made))


def _fp8(t: Tape, base: Base) -> int:
    """Fine-grained FP8: the input's codes and scales are made by the kernel; backward makes the weight in 16 bits."""
    x, low = base.x, t.dtype[base.x]
    row = FP8_ROWS
    blocks = Axis(Dim.BLOCKS, -(-t.dims[base.weight][-1].size // row.block))
    tokens = elements(t.dims[x]) // t.dims[base.weight][-1].size
    codes = aten.temporary(t, t.dims[x], FP8, "codes of the input", Basis.ASSUMED)
    scales = aten.temporary(t, (Axis(Dim.TOKENS, tokens), blocks), FP32, "scales of the input", Basis.ASSUMED)
    out = t.fresh(base.dims, low, t.grad[x], "output")
    whole = aten.temporary(t, t.dims[base.weight], low, "weight in backward")
    spread = aten.temporary(t, (t.dims[base.weight][0], blocks), low, "scales of every output")
    steps = (*born(whole, spread), Step(Code.GRAD, 0), *dead(spread, whole))
    saves = (base.weight,) if t.grad[x] else ()
    return t.run(Prim("linear", (x, base.weight), (out,), saves, steps, (codes, scales)))
