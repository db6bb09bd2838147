"""Megatron-Core's multi-latent attention on a tape: what happens between its projections.

Source: megatron/core/transformer/multi_latent_attention.py; models/common/embeddings/rope_utils.py; fusions/
fused_mla_yarn_rope_apply.py (0.14 to 0.19).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.ledger import aten, mega_attention
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.tape import Code, Prim, Step
from trainledger.model.operations_megatron import Parallel

Made = tuple[int, int, int]  # queries, keys and values


def whole(f: Frame, spec: Parallel, x: int, dims: Dims) -> int:
    """A linear layer that every rank has in whole, over its own part of the sequence."""
    t = f.tape
    ins = (x, f.need(spec.weight), *((f.need(spec.bias),) if spec.bias is not None else ()))
    out = t.fresh((*t.dims[x][:-1], *dims), t.dtype[x], True, "output")
    steps = tuple(Step(Code.GRAD, at) for at in range(len(ins)) if not (at == 1 and mega_of(f).added))
    return t.run(Prim("te linear", ins, (out,), ins[: len((x, spec))], steps, ()))


def latents(f: Frame, x: int, dims: Dims) -> list[int]:
    """The latent, which Transformer Engine's layer copies as it is a part of a larger tensor, and the part of the keys
    that turns, gathered where the sequence is spread. Megatron's own layers have gathered both over several ranks."""
    t, ranks = f.tape, mega_of(f).ranks
    front = t.dims[x][:-1]
    low, turned = aten.chunk(t, x, [(*front, dims[0]), (*front, dims[1])])
    if mega_of(f).engine is None and ranks > 1:
        return [_own_part(f, low), turned]
    if ranks > 1:
        longer = tuple(Axis(one.dim, one.size * ranks) if one.dim is Dim.SEQUENCE else one for one in front)
        part = turned
        turned = t.fresh((*longer, dims[1]), t.dtype[x], True, "gathered part of the keys")
        t.run(Prim("all-gather", (part,), (turned,), (), aten.GRAD0, ()))
    if mega_of(f).engine is None:  # PyTorch's product reads it as it lies
        return [low, turned]
    return [aten.copy(t, low), turned]


def _own_part(f: Frame, x: int) -> int:
    """This rank's part of the sequence, copied out of a larger tensor; backward gathers its gradient."""
    t, ranks = f.tape, mega_of(f).ranks
    part = tuple(Axis(one.dim, one.size // ranks) if one.dim is Dim.SEQUENCE else one for one in t.dims[x])
    out = t.fresh(part, t.dtype[x], True, "part of the latent")
    return t.run(Prim("part of the sequence", (x,), (out,), (), aten.GRAD0, ()))


def unfolded(f: Frame, straight: int, ins: Made, dims: Dims) -> list[int]:
    """Queries, keys and values by head, each a tensor of its own."""
    t = f.tape
    heads, wide, value = dims
    front = t.dims[ins[0]][:-1]
    q = aten.view(t, ins[0], (*front, heads, wide))
    kv = aten.view(t, ins[1], (*front, heads, Axis(Dim.HEAD_DIM, straight + value.size)))
    values = (*front, heads, Axis(Dim.HEAD_DIM, value.size))
    if mega_of(f).fusions.rope:
        return _fused(f, (q, kv, ins[2]), values)
    own = (*front, heads, Axis(Dim.HEAD_DIM, straight))
    first, second = aten.chunk(t, q, [own, (*front, heads, Axis(Dim.ROPE_DIM, wide.size - straight))])
    key, seen = aten.chunk(t, kv, [own, values])
    turned = _turned(f, second)
    shared = _turned(f, aten.view(t, ins[2], (*front, Axis(Dim.ONE, 1), *t.dims[ins[2]][-1:])))
    query = aten.cat(t, [first, turned], t.dims[q], "queries")
    spread = t.alias(shared, t.dims[turned])
    t.run(Prim("expand", (shared,), (spread,), (), aten.GRAD0, ()))
    keys = aten.cat(t, [key, spread], t.dims[q], "keys")
    made = aten.copy(t, seen)
    t.end([q, kv, first, second, key, seen, turned, shared, spread])
    return [query, keys, made]


def _fused(f: Frame, ins: Made, values: Dims) -> list[int]:
    """Kernels turn queries where they lie, and write keys and values."""
    t, (q, kv, shared) = f.tape, ins
    query = t.alias(q)
    t.run(Prim("turn in place", (q,), (query,), (), (Step(Code.PASS, 0),), ()))
    keys, made = t.fresh(t.dims[q], t.dtype[q], True, "keys"), t.fresh(values, t.dtype[q], True, "values")
    t.run(Prim("turn", (kv, shared), (keys, made), (), (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))
    return [query, keys, made]


def _turned(f: Frame, x: int) -> int:
    """The elements of each pair put in two halves, which turn."""
    t = f.tape
    half = (*t.dims[x][:-1], Axis(Dim.ROPE_DIM, t.dims[x][-1].size // len(mega_attention.WAVES)))
    parts = [aten.part(t, x, half) for _ in mega_attention.WAVES]
    return mega_attention.turned(f, aten.cat(t, parts, t.dims[x], "halves"))
