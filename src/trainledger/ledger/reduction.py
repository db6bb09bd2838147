"""The scratch memory of PyTorch's sum over the rows of a matrix."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT32
from trainledger.facts.kernel_sets import COLUMN_SUM, Multiprocessors
from trainledger.ledger.tape import Storage, Tape


def _below(value: int) -> int:
    """The largest power of two that is not above a value of 1 or more."""
    return 1 << (value.bit_length() - 1)


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


def column_sum(rows: int, columns: int, device: Multiprocessors) -> tuple[int, int]:
    """Partial sums (fp32 elements) that several blocks of the device share, and how many groups of them there are.

    (0, 0) where one block sums each column by itself, or where the device is not known. Each thread keeps a vector of
    columns.
    """
    k = COLUMN_SUM
    if not device.count:
        return (0, 0)
    vector = k.vector if columns % k.vector == 0 else 1
    threads = k.threads // vector
    lanes = min(_below(max(min(columns // vector, threads), 1)), k.warp)
    depth = min(threads // lanes, _below(max(rows, 1)))
    each = -(-rows // depth) if rows >= min(depth * k.least, k.most) else rows
    blocks = -(-columns // vector // lanes)
    target = device.count * (device.threads // (lanes * depth))
    if each < k.most or blocks > target:
        return (0, 0)
    shares = max(min(-(-target // blocks), -(-each // k.least)), -(-each // k.most))
    return (columns * shares * lanes * vector, blocks) if shares > 1 else (0, 0)
