"""The scratch memory of PyTorch's sum over the rows of a matrix."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT32
from trainledger.facts.kernel_sets import Multiprocessors
from trainledger.ledger.tape import Storage, Tape
from trainledger.lines.kernel_work import column_sum


def column_sum_work(t: Tape, rows: int, columns: int, device: Multiprocessors) -> tuple[int, ...]:
    """Storages of a sum over rows that live inside its kernel: partial sums and a counter of each group of blocks."""
    partial, blocks = column_sum(rows, columns, device)
    if not partial:
        return ()
    made = []
    for size, dtype, name in ((partial, FP32, "partial sums of blocks"), (blocks, INT32, "counters of blocks")):
        made.append(len(t.storages))
        t.storages.append(Storage.of((Axis(Dim.ELEMENTS, size),), dtype, f"{t.scope}: {name}"))
    return tuple(made)
