"""Rotary embedding on a tape: queries and keys times cosines, plus their turned halves times sines.

Sources: apply_rotary_pos_emb and rotate_half of transformers/models/{llama,olmo2,cohere,phi3,glm}/modeling_*.py
(5.24.0).
"""

from __future__ import annotations

from collections.abc import Sequence

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.ledger import aten
from trainledger.ledger.rules_torchtitan import complex_rope
from trainledger.ledger.tape import Tape
from trainledger.model.program import Join, Rope

Pair = tuple[int, int]
WHOLE = (Join.NONE, Join.CACHE)  # all of a head turns


def rope(t: Tape, spec: Rope, wholes: Sequence[int], tables: Pair) -> list[int]:
    """Queries and keys (or one of both) turned by the tables (cosines and sines): what stands for them from here on."""
    if spec.join is Join.PAIRS:
        return [_pairs(t, x, tables) for x in wholes]
    if spec.join is Join.COMPLEX:
        queries, keys = wholes
        return complex_rope(t, (queries, keys), tables[0])
    dtypes = [t.dtype[x] for x in wholes]
    inputs = [aten.to(t, x, FP32) if spec.upcast else x for x in wholes]
    used = [_spread(t, table) for table in tables] if spec.spread else list(tables)
    if spec.join is Join.CACHE:
        used = [aten.to(t, table, dtypes[0]) for table in tables]
    split = [[x] for x in inputs] if spec.join in WHOLE else [_parts(t, spec, x) for x in inputs]
    out: list[int] = []
    for parts, dtype in zip(split, dtypes, strict=True):
        turned = _turn(t, spec, parts[0], used)
        turned = aten.to(t, turned, dtype) if spec.join is Join.CAST else turned
        out.append(_joined(t, spec, turned, parts[1]) if spec.join is Join.EACH else turned)
    named: list[int] = []
    if spec.join is Join.APART:
        named = [*out, *(parts[1] for parts in split)]
    if spec.join is Join.CAST:
        named = [*out]
    if spec.join in (Join.LAST, Join.CAST, Join.APART, Join.RETURNED):
        parts_named = out if spec.join is Join.RETURNED else []
        out = [_joined(t, spec, turned, parts[1]) for turned, parts in zip(out, split, strict=True)]
        t.end(parts_named)
    result = [aten.to(t, x, dtype) if spec.back else x for x, dtype in zip(out, dtypes, strict=True)]
    t.end([*inputs, *used, *out, *result])
    return [*result, *named]


def own(t: Tape, spec: Rope, both: Pair, table: int) -> list[int]:
    """As `rope` of both, keys first; each spreads the table's sines and cosines for itself.

    Source: transformers/models/{gptj,codegen}/modeling_*.py, apply_rotary_pos_emb (5.24.0).
    """
    queries, keys = both
    split = {x: _parts(t, spec, x) for x in (keys, queries)}
    turned: dict[int, int] = {}
    for x in (keys, queries):
        sin, cos = _spread(t, table), _spread(t, table)
        turned[x] = _turn(t, spec, split[x][0], [cos, sin])
        t.end([sin, cos])
    dtypes = {x: t.dtype[x] for x in both}
    joined = {x: _joined(t, spec, turned[x], split[x][1]) for x in (keys, queries)}
    t.end([keys, queries])
    result = [aten.to(t, joined[x], dtypes[x]) if spec.back else joined[x] for x in both]
    return [*result, *(turned[x] for x in both), *(split[x][1] for x in both)]


def _turn(t: Tape, spec: Rope, x: int, tables: list[int]) -> int:
    cos, sin = tables
    dims = t.dims[x]
    half = (*dims[:-1], Axis(Dim.ROPE_DIM, spec.rotary // len(tables)))
    straight = aten.mul(t, aten.to(t, x, FP32) if spec.late or spec.twice else x, cos, "times cos")
    source = aten.to(t, x, FP32) if spec.twice else x
    first, second = aten.part(t, source, half), aten.part(t, source, half)
    turned = aten.cat(t, [aten.unary(t, "neg", second), first], dims, "rotated half")
    t.end([first, second, *([source] if source != x else [])])
    turned = aten.to(t, turned, FP32) if spec.late else turned
    return aten.add(t, straight, aten.mul(t, turned, sin, "times sin"), "rotated")


def _pairs(t: Tape, x: int, tables: Pair) -> int:
    """Both elements of every pair in fp32, times cosine and sine; the two results stacked, and cast back.

    Source: torchtune/modules/position_embeddings.py, RotaryPositionalEmbeddings.forward (2024-05, 2024-11).
    """
    dims = t.dims[x]
    half = (*dims[:-1], Axis(Dim.ROPE_DIM, dims[-1].size // len(tables)))
    high = aten.to(t, x, FP32)
    cos, sin = (t.alias(table, (*t.dims[table][:-1], half[-1])) for table in tables)
    made = []
    for join, first, second in ((aten.sub, cos, sin), (aten.add, cos, sin)):
        made.append(
            join(t, aten.mul(t, aten.part(t, high, half), first), aten.mul(t, aten.part(t, high, half), second))
        )
    stacked = aten.cat(t, made, dims, "stacked")
    out = aten.to(t, stacked, t.dtype[x])
    t.end([high, stacked])
    return out


def _parts(t: Tape, spec: Rope, x: int) -> list[int]:
    """The part that turns and the part that passes; a slice of everything is no slice, one of nothing is."""
    dims = t.dims[x]
    rest = (*dims[:-1], Axis(Dim.HEAD_DIM, spec.head - spec.rotary))
    turning = (*dims[:-1], Axis(Dim.HEAD_DIM, spec.rotary))
    first = aten.part(t, x, turning) if spec.rotary < spec.head else aten.view(t, x)
    return [first, aten.part(t, x, rest)]


def _joined(t: Tape, spec: Rope, turned: int, rest: int) -> int:
    dims: Dims = (*t.dims[turned][:-1], Axis(Dim.HEAD_DIM, spec.head))
    if t.autocast is not None:  # a concatenation is promoted to the widest dtype
        rest = aten.to(t, rest, t.dtype[turned])
    return aten.cat(t, [turned, rest], dims, "rotated and the rest")


def _spread(t: Tape, table: int) -> int:
    """Half of a table, each entry repeated for its pair: a copy in every layer."""
    return aten.copy(t, table)
