"""Attention whose ranks exchange parts of the sequence for heads: each runs all tokens of its share of the heads.

Queries, keys and values lie token by token. Each is copied rank by rank, exchanged into a tensor of its own, and copied
head by head for the kernel; keys and values of fewer heads than ranks are repeated first. The numbers of all positions
are gathered at every call. Backward exchanges again: the result is made like its argument, then once more contiguous,
and the argument is copied where it is not.
Source: deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF; deepspeed/sequence/layer.py,
_DimZeroAllToAll (0.17.2 to 0.19.8).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import INT64
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape

Three = tuple[int, int, int]


def around(f: Frame, qkv: Three, ranks: int, kernel: Callable[[Three], int]) -> int:
    """The result of `kernel` on this rank's heads, exchanged back, [batch, part of the sequence, heads, head dim]."""
    t, back = f.tape, f.tape.dims[qkv[0]]
    numbers = _positions(t, back[:2], ranks)
    sent = [_sent(t, x, ranks) for x in qkv]
    laid = [_by_head(t, x) for x in sent]
    q, k, v = laid
    result = kernel((q, k, v))
    t.end([*laid, *numbers])
    got = _exchanged(t, aten.view(t, result), copied=True)
    return aten.copy(t, got, back)


def _positions(t: Tape, tokens: Dims, ranks: int) -> list[int]:
    """Numbers of all positions: parts of all ranks, then joined. Both are named until attention returns."""
    dims = (tokens[0], Axis(Dim.SEQUENCE, tokens[1].size * ranks))
    found = [t.fresh(dims, INT64, False, name) for name in ("positions of each rank", "positions of all ranks")]
    for value in found:
        t.run(Prim("positions", (), (value,), (), (), ()))
    return found


def _sent(t: Tape, x: int, ranks: int) -> int:
    """All tokens of this rank's heads, token by token. What is sent is named until the exchange is done."""
    batch, sequence, heads, width = t.dims[x]
    if heads.size < ranks:
        wide = (batch, sequence, Axis(heads.dim, ranks), width)
        out = t.fresh(wide, t.dtype[x], t.grad[x], "heads repeated for ranks")
        x = t.run(Prim("expand, clone", (x,), (out,), (), aten.GRAD0, ()))
    by_rank = aten.copy(t, x)
    own = Axis(heads.dim, max(heads.size // ranks, 1))
    whole = (batch, Axis(Dim.SEQUENCE, sequence.size * ranks), own, width)
    got = _exchanged(t, by_rank, copied=batch.size * own.size > 1, dims=whole)
    t.end([by_rank])
    return got


def _exchanged(t: Tape, x: int, copied: bool, dims: Dims | None = None) -> int:
    """An all-to-all into a new tensor. `copied`: the gradient does not lie in the order in which it is sent."""
    out = t.fresh(t.dims[x] if dims is None else dims, t.dtype[x], t.grad[x], "exchanged")
    steps: tuple[Step, ...] = aten.GRAD0
    if copied:
        like, sent = (aten.temporary(t, t.dims[x], t.dtype[x], f"exchange: {name}") for name in ("result", "argument"))
        steps = (
            Step(Code.BORN, 0, like), Step(Code.GRAD, 0), Step(Code.DEAD, 0, like), Step(Code.BORN, 0, sent),
            Step(Code.DEAD, 0, sent),
        )  # fmt: skip
    return t.run(Prim("all-to-all", (x,), (out,), (), steps, ()))


def _by_head(t: Tape, x: int) -> int:
    """A copy head by head; a single head of a single sequence lies so already."""
    batch, _, heads, _ = t.dims[x]
    return aten.copy(t, x) if elements((batch, heads)) > 1 else aten.view(t, x)
