"""A model's outputs from the end of its forward to their own end: logits, and keys and values where it returns them.

The caller takes the loss and lets go of the rest before backward. Under autocast accelerate first copies them to fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.outputs import CACHE, CLONED_OUTPUTS, KEPT_CACHE, RAISED_OUTPUTS
from trainledger.facts.preference_row import Asked, Outputs
from trainledger.ledger.book import Book
from trainledger.ledger.frame import Frame
from trainledger.ledger.run import Run
from trainledger.ledger.shown import shown
from trainledger.ledger.tape import EXTERNAL
from trainledger.lines.line import Account
from trainledger.lines.stream import Events

PAIR = Axis(Dim.SLOTS, len(("keys", "values")))


class Output(NamedTuple):
    """A tensor that a model returns: its line, its dims and its dtype."""

    line: int
    dims: Dims
    dtype: DType


def keeps_cache(run: Run, family: str) -> bool:
    """Whether a model's outputs hold what its layers made keys and values of, though they are recomputed."""
    return run.software.caches and KEPT_CACHE.holds(family, run.setting.transformers)


def cached(book: Book, run: Run, frame: Frame, place: str) -> dict[int, int]:
    """Lines of a layer's keys and values, by value, where a model that is not trained gathers them in its cache while
    it runs forward; empty where it makes none. `place`: what the layer's lines are called by."""
    tape, found = frame.tape, dict[int, int]()
    if run.setting.training or not run.software.caches:
        return found
    seen = {EXTERNAL}
    for name, values in (("keys", frame.keys), ("values", frame.values)):
        for value in values:
            storage = tape.store[value]
            if storage not in seen:  # what is fused lies in one
                seen.add(storage)
                made = tape.storages[storage]
                label = f"{place}{name} in the cache"
                found[value] = book.tensor(Account.ACTIVATIONS, label, made.dims, made.dtype, CACHE.source)
    return found


def hands_hidden(run: Run) -> bool:
    """Whether a model's outputs hold the hidden states of all layers."""
    reading = run.scoring.reading
    return reading is not None and reading.asked is Asked.HIDDEN


def outputs_of(run: Run) -> Outputs:
    """How long a model's outputs live; a name that nothing holds past the loss is of no account."""
    reading = run.scoring.reading
    if reading is None or (reading.outputs is Outputs.NAMED and not run.scoring.held):
        return Outputs.LOCAL
    return reading.outputs


def raises(run: Run) -> bool:
    """Whether outputs are copied to fp32."""
    return run.trainer and run.setting.autocast is not None and not run.keeps_logits


def ended(
    book: Book, run: Run, logits: Output | None, caches: Sequence[Output], cloned: Output | None = None
) -> Events:
    """The copies are born, the old outputs die, then, once the trainer's log is made, the copies. `caches`: keys and
    values, by layer; `cloned`: the logits, where DistributedDataParallel clones what it is given last, and lets go of
    that before the trainer is handed it."""
    old = [*((logits,) if logits is not None else ()), *caches]
    new: list[int] = []
    raised = [one for one in old if raises(run) and one.dtype != FP32]
    for one in raised:
        name, account = ("logits", Account.LOGITS) if one is logits else ("keys and values", Account.ACTIVATIONS)
        new.append(book.tensor(account, f"{name} in fp32", one.dims, FP32, RAISED_OUTPUTS.source))
    clone = _clone(book, run, cloned) if cloned is not None else ()
    log = _log(book, run, logits) if logits is not None else ()
    late = [logits.line] if logits is not None and logits not in raised else []
    births, gone = [line + 1 for line in new], [-one.line - 1 for one in old if one.line not in late]
    ends, copies = [-line - 1 for line in (*late, *new)], [line + 1 for line in clone]
    if not clone:
        return (*births, *gone, *log, *ends)
    passed = (*births, *gone, *copies) if new else (*copies, *gone)
    return (*passed, *ends, *log, *(-line - 1 for line in clone))


def _clone(book: Book, run: Run, logits: Output) -> tuple[int]:
    """The line of the logits as DistributedDataParallel clones them."""
    dtype = FP32 if raises(run) else logits.dtype
    return (book.tensor(Account.LOGITS, "logits, cloned", logits.dims, dtype, CLONED_OUTPUTS.source),)


def _log(book: Book, run: Run, logits: Output) -> Events:
    """What the trainer's log makes of the logits as it is handed them."""
    how = run.scoring.shows
    dtype = FP32 if raises(run) else logits.dtype
    return shown(book, how, logits.dims, dtype) if how is not None else ()
