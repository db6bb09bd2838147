"""Megatron-Core's embedding: rows of a table that is spread over ranks, positions, the layout that layers read.

Sources: megatron/core/models/common/embeddings/language_model_embedding.py, tensor_parallel/layers.py
(VocabParallelEmbedding), tensor_parallel/mappings.py (0.19.2).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL
from trainledger.ledger import aten, nn
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.tape import Code, Prim, Step
from trainledger.model.operations_megatron import Looked


def cut(dims: Dims, by: int) -> Dims:
    """The dims with one of `by` parts of the sequence."""
    return tuple(Axis(one.dim, one.size // by) if one.dim is Dim.SEQUENCE else one for one in dims)


def looked(f: Frame, spec: Looked, ids: int, dims: Dims) -> int:
    """Rows of the table, learned positions, the layout that layers read (sequence first), dropout."""
    t, ranks = f.tape, mega_of(f).ranks
    rows = (*t.dims[ids], *dims)
    table, turned = f.need(spec.weight), f.setting.batch > 1
    x = nn.embedding(t, ids, table, rows, turned)
    if mega_of(f).parts.tp > 1:
        x = _masked(f, x, ids)
    if ranks > 1 and spec.positions is None:  # the table's own function exchanges, sequence first
        x = _spread(f, _sequence_first(f, x, []), [])
    named = [x]  # until the embedding returns
    if ranks > 1 and spec.positions is None:
        x = aten.copy(t, x)
    else:
        if spec.positions is not None:
            named.append(nn.embedding(t, ids, f.need(spec.positions), rows, turned))
            x = aten.add(t, x, named[-1], "with positions")
        x = _sequence_first(f, x, named)
        x = _spread(f, x, named) if ranks > 1 else x
    out = aten.dropout(t, x, spec.dropout if f.setting.training else 0)
    t.end([one for one in {*named, x} if one != out])
    return out


def _sequence_first(f: Frame, x: int, named: list[int]) -> int:
    """A copy where there are several sequences; what is not `named` ends."""
    if f.setting.batch == 1:
        return x
    out = aten.copy(f.tape, x)
    f.tape.end([x] if x not in named else [])
    return out


def _spread(f: Frame, x: int, named: list[int]) -> int:
    """This rank's part of the sequence; what is not `named` ends."""
    t = f.tape
    part = t.fresh(cut(t.dims[x], mega_of(f).ranks), t.dtype[x], True, "part of the sequence")
    t.run(Prim("reduce-scatter", (x,), (part,), (), (Step(Code.GRAD, 0),), ()))
    t.end([x] if x not in named else [])
    return part


def _masked(f: Frame, x: int, ids: int) -> int:
    """Rows of other ranks' words set to zero, in place; the mask and the ids within this rank's words are kept."""
    t = f.tape
    mask = t.fresh(t.dims[ids], BOOL, False, "words of other ranks")
    t.run(Prim("compare", (ids,), (mask,), (), (), ()))
    out = t.alias(x)
    t.run(Prim("index_put_", (x, mask), (out,), (mask,), (Step(Code.GRAD, 0),), ()))
    return out
