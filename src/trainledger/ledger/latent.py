"""Attention through latents on a tape: neighbours turned as pairs, and keys written into a new tensor.

Sources: transformers (5.24.0) models/deepseek_v2/modeling_deepseek_v2.py, apply_rotary_emb and expand_kv;
models/deepseek_v3/modeling_deepseek_v3.py, apply_rotary_pos_emb_interleave; torch (v2.13)
tools/autograd/derivatives.yaml: mul of complex numbers; torch/csrc/autograd/functions/tensor.cpp: CopySlices,
CopyBackwards.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import COMPLEX64, FP32
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape

HALVES = ("first", "second")


def compound(t: Tape, both: tuple[int, int], turns: int, by_token: bool) -> list[int]:
    """Queries and keys in fp32, seen as complex numbers, times the turns, cast back. `by_token`: the kernel leaves the
    queries' gradient token by token."""
    dtypes = [t.dtype[x] for x in both]
    high = [aten.to(t, x, FP32) for x in both]
    out = []
    for x, dtype in zip(high, dtypes, strict=True):
        spread = t.dims[x][-2].size > 1 and (by_token or dtype == FP32)  # a part of the gradient of whole heads
        out.append(aten.to(t, _turned(t, x, turns, spread), dtype))
    t.end([*high, *out])
    return out


def whole(t: Tape, both: tuple[int, int], turns: int, spread: tuple[bool, bool]) -> list[int]:
    """As `compound`, of queries and keys whose whole heads turn: both are turned before either is cast back.
    `spread`: whether the gradient of each comes head by head."""
    high = [aten.to(t, x, FP32) for x in both]
    turned = [_turned(t, x, turns, one) for x, one in zip(high, spread, strict=True)]
    out = [aten.to(t, x, t.dtype[like]) for x, like in zip(turned, both, strict=True)]
    t.end([*high, *turned, *out])
    return out


def _turned(t: Tape, x: int, turns: int, spread: bool) -> int:
    """One product of complex numbers; backward first copies a gradient that is `spread`, which is no tensor of complex
    numbers as it lies, and writes out the turns' conjugates."""
    half: Dims = (*t.dims[x][:-1], Axis(Dim.ROPE_DIM, t.dims[x][-1].size // len(HALVES)))
    grad = t.grad[x]
    flow = aten.view(t, x, half)
    t.dtype[flow] = COMPLEX64
    out = t.fresh(half, COMPLEX64, grad, "turned")
    conjugate = aten.temporary(t, t.dims[turns], COMPLEX64, "conjugate in backward")
    steps = (Step(Code.BORN, 0, conjugate), Step(Code.GRAD, 0), Step(Code.DEAD, 0, conjugate))
    t.run(Prim("mul", (flow, turns), (out,), (turns,) if grad else (), steps, ()))
    back = aten.heads_first(t, out, t.dims[x]) if spread else aten.view(t, out, t.dims[x])
    t.dtype[back] = FP32
    return back


def interleaved(t: Tape, q: int, k: int, tables: tuple[int, int]) -> list[int]:
    """Even elements then odd ones, each turned: cat([even cos - odd sin, odd cos + even sin])."""
    parts = []
    for x in (q, k):
        half: Dims = (*t.dims[x][:-1], Axis(Dim.ROPE_DIM, t.dims[x][-1].size // len(HALVES)))
        parts.append((aten.part(t, x, half), aten.part(t, x, half)))
    waves = tuple((aten.view(t, table, (*t.dims[table][:-1], t.dims[parts[0][0]][-1])), table) for table in tables)
    out = []
    for whole, (even, odd) in zip((q, k), parts, strict=True):
        made = []
        for join, first, second in ((aten.sub, even, odd), (aten.add, odd, even)):
            made.append(join(t, _times(t, first, waves[0]), _times(t, second, waves[1])))
        out.append(aten.cat(t, made, t.dims[whole], "turned pairs"))
    t.end([*(x for pair in parts for x in pair), *out])
    return out


def halves(t: Tape, x: int, tables: tuple[int, int]) -> int:
    """One half after the other, each turned: cat([first cos - second sin, second cos + first sin]); tables of pairs."""
    half: Dims = (*t.dims[x][:-1], Axis(Dim.ROPE_DIM, t.dims[x][-1].size // len(HALVES)))
    first, second = aten.chunk(t, x, (half, half))
    made = []
    for join, one, other in ((aten.sub, first, second), (aten.add, second, first)):
        straight = aten.mul(t, one, tables[0], "times cos")
        made.append(join(t, straight, aten.mul(t, other, tables[1], "times sin")))
    out = aten.cat(t, made, t.dims[x], "turned halves")
    t.end([first, second, *made])
    return out


def _times(t: Tape, x: int, wave: tuple[int, int]) -> int:
    """x times the half of a table, which autograd saves as a view of the whole."""
    half, table = wave
    out = aten.mul(t, x, half, "times a wave")
    t.prims[-1] = t.prims[-1]._replace(saves=tuple(table if one == half else one for one in t.prims[-1].saves))
    return out


def joined(t: Tape, parts: list[int], dims: Dims) -> int:
    """A concatenation; autocast promotes it to the widest dtype."""
    wide = t.dtype[parts[0]]
    for x in parts[1:]:
        wide = aten.promote(wide, t.dtype[x])
    return aten.cat(t, [aten.to(t, x, wide) for x in parts], dims)


def filled(t: Tape, own: int, shared: int, dims: Dims) -> int:
    """Keys of every head: a new tensor, into a part of which the heads' own parts are copied, and the part that all
    heads share into the rest."""
    wide = t.run(Prim("expand", (shared,), (t.alias(shared, (*dims[:-1], t.dims[shared][-1])),), (), aten.GRAD0, ()))
    keys = t.run(Prim("new_empty", (), (t.fresh(dims, t.dtype[own], False, "keys"),), (), (), ()))
    for part in (own, wide):
        keys = written(t, keys, part)
    return keys


def written(t: Tape, whole: int, part: int) -> int:
    """whole[...] = part. Backward copies the incoming gradient, and the part of it; where the rest of the whole needs a
    gradient, zeros take the part's place in the copy."""
    out = t.alias(whole)
    t.grad[out] = t.grad[whole] or t.grad[part]
    if not t.grad[out]:
        return t.run(Prim("copy_", (whole, part), (out,), (), (), ()))
    dims = t.dims[part]
    copied = aten.temporary(t, t.dims[whole], t.dtype[whole], "copy of the gradient of keys")
    slice_ = aten.temporary(t, dims, t.dtype[whole], "part of the gradient of keys")
    steps = [Step(Code.BORN, 0, copied), Step(Code.BORN, 1, slice_)]
    zeros = aten.temporary(t, dims, t.dtype[whole], "zeros in the gradient of keys")
    if t.grad[whole]:
        steps.append(Step(Code.BORN, 0, zeros))
    same = t.dtype[part] == t.dtype[whole]
    if not same:
        steps += [Step(Code.GRAD, 1), Step(Code.DEAD, 1, slice_)]
    if t.grad[whole]:
        steps += [Step(Code.GIVE, 0, copied), Step(Code.DEAD, 0, zeros)]
    else:
        steps.append(Step(Code.DEAD, 0, copied))
    if same:
        steps.append(Step(Code.GIVE, 1, slice_))
    return t.run(Prim("copy_slices", (whole, part), (out,), (), tuple(steps), ()))
