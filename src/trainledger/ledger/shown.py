"""What a trainer makes of all logits for its log, after the loss and before the model's outputs go.

Source: the rows in facts/supervised.py.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.facts.preference_row import Cut, Metric
from trainledger.facts.supervised import Shows
from trainledger.ledger import aten
from trainledger.ledger.book import Book
from trainledger.ledger.losses_log import Shown, metric
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.lines.line import Account
from trainledger.lines.stream import Events


def shown(book: Book, how: Shows, dims: Dims, dtype: DType) -> Events:
    """Births and deaths over logits of these dims (sequences, tokens, words), as the model handed them out. A copy of
    one sequence's is a view."""
    t = Tape()
    writes(t, how, t.outside(dims, dtype, False))
    events: list[int] = []
    for event in run_forward(t, frozenset(), False).events:
        made = t.storages[abs(event) - 1]
        line = book.storage(Account.LOGITS, made.name, made)
        events.append(line + 1 if event > 0 else -line - 1)
    return tuple(events)


def writes(t: Tape, how: Shows, logits: int) -> None:
    """What the trainer makes of these logits, on a tape."""
    t.scope = "log"
    batch, sequence, vocab = t.dims[logits]
    shorter = aten.part(t, logits, (batch, Axis(Dim.SEQUENCE, sequence.size - 1), vocab))
    copies = batch.size > 1
    read = {Cut.NONE: logits, Cut.VIEW: shorter}.get(how.cut, shorter)
    if how.cut is Cut.COPY and copies:
        read = aten.copy(t, shorter)
    if how.entropies is not Metric.NONE:
        metric(t, Shown(logits, read, how.cut is Cut.VIEW, 0, 1), how.entropies)
    if how.copied and copies:
        aten.copy(t, shorter)
    t.end([read, logits])
