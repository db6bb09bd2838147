"""A model's outputs from the end of its forward to their own end: logits, and keys and values where it returns them.

The caller takes the loss and lets go of the rest before backward. Under autocast accelerate first copies them to fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.outputs import KEPT_CACHE, RAISED_OUTPUTS
from trainledger.ledger.book import Book
from trainledger.ledger.run import Run
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


def raises(run: Run) -> bool:
    """Whether outputs are copied to fp32."""
    return run.trainer and run.setting.autocast is not None and not run.keeps_logits


def ended(book: Book, run: Run, logits: Output | None, caches: Sequence[Output]) -> Events:
    """The copies are born, the old outputs die, then the copies. `caches`: keys and values, by layer."""
    old = [*((logits,) if logits is not None else ()), *caches]
    new: list[int] = []
    for one in old if raises(run) else ():
        if one.dtype != FP32:
            name, account = ("logits", Account.LOGITS) if one is logits else ("keys and values", Account.ACTIVATIONS)
            new.append(book.tensor(account, f"{name} in fp32", one.dims, FP32, RAISED_OUTPUTS.source))
    return (*(line + 1 for line in new), *(-one.line - 1 for one in old), *(-line - 1 for line in new))
