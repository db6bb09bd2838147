"""What is made of logits without a graph: sums that weigh pairs, and what is made for a trainer's log.

Source: the rows in facts/preferences_trl.py and facts/supervised.py.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.preference_row import Metric
from trainledger.facts.preferences import PAIR
from trainledger.facts.preferences_trl import ENTROPY_CHUNK
from trainledger.ledger import aten
from trainledger.ledger.tape import Prim, Tape


class Shown(NamedTuple):
    """What the log is made of: all logits, those without the last token's, whether these are a view; tokens of a
    sequence that count (0: all), and ranks."""

    whole: int
    read: int
    viewed: bool
    counted: int
    ranks: int


def weighed(t: Tape, read: int, named: bool) -> int:
    """Sums of squared probabilities, without a graph: the logsumexp of doubled log-probabilities, which stay `named`,
    or of doubled logits after that of the logits. Its kernels' argument is a copy, less the largest of each row."""
    dims, dtype = t.dims[read], t.dtype[read]

    def made(kind: str, of: int, out: Dims, name: str, *work: int) -> int:
        return t.run(Prim(kind, (of,), (t.fresh(out, dtype, False, name),), (), (), work))

    def lse(of: int) -> int:
        return made("lse", of, dims[:-1], "sums", aten.temporary(t, dims, dtype, "logsumexp kernel: shifted"))

    first = made("log_softmax", read, dims, "log-probabilities for weights") if named else lse(read)
    lse(made("scale", first if named else read, dims, "doubled"))
    return first


def metric(t: Tape, shown: Shown, which: Metric) -> list[int]:
    """What is made for the log. Returns the picked sequences, chosen and rejected; of an odd number the rejected are
    one more."""
    batch, sequence, vocab = t.dims[shown.read]
    half = -(-batch.size // len(PAIR))
    counted: Dims = (Axis(Dim.TOKENS, half * (shown.counted or sequence.size)), vocab)
    if which is Metric.COUNTED:
        _made(t, shown.read, counted, "logits that count")
    if which is Metric.SQUARES:
        weighed(t, shown.read, False)
    if which in (Metric.ENTROPY, Metric.ENTROPY_ROWS):
        _entropies(t, shown, which is Metric.ENTROPY_ROWS)
    if which is Metric.GATHERED and shown.ranks > 1:
        _made(t, shown.read, (Axis(batch.dim, half * shown.ranks), sequence, vocab), "rejected logits of all ranks")
    if which not in (Metric.PICKED, Metric.PICKED_COUNTED):
        return []
    parts = [Axis(batch.dim, size) for size in (batch.size - half, half) if size]
    found = [_made(t, shown.whole, (one, *t.dims[shown.whole][1:]), "logits of picked sequences") for one in parts]
    if which is Metric.PICKED_COUNTED:
        _made(t, shown.read, counted, "logits that count")
        t.end(found)
    return found


def _made(t: Tape, of: int, dims: Dims, name: str) -> int:
    """A tensor without a graph of another's entries."""
    return t.run(Prim("index", (of,), (t.fresh(dims, t.dtype[of], False, name),), (), (), ()))


def _entropies(t: Tape, shown: Shown, by_row: bool) -> None:
    """Sequence by sequence, or chunk by chunk over flat logits, a copy where they are a view of several sequences."""
    flat, dims = shown.read, t.dims[shown.read]
    rows = (Axis(Dim.TOKENS, elements(dims[:-1])), dims[-1])
    if shown.viewed and dims[0].size > 1 and not by_row:
        flat = _made(t, flat, rows, "copy of the logits for their entropy")
    tokens = dims[1].size if by_row else min(ENTROPY_CHUNK.tokens, rows[0].size)
    chunk: Dims = (Axis(Dim.TOKENS, tokens), dims[-1])
    work = tuple(aten.temporary(t, chunk, t.dtype[flat], "entropies of a chunk") for _ in range(ENTROPY_CHUNK.tensors))
    t.run(Prim("entropy", (flat,), (t.fresh(dims[:-1], t.dtype[flat], False, "entropy"),), (), (), work))
