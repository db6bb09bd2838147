"""The gradient buckets of DistributedDataParallel: flat tensors that hold every trained parameter's gradient once.

Source: torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size and rebuild_buckets (v2.4 to v2.13):
parameters from the last to the first, then in the order in which their gradients came; a bucket is closed by the one
that reaches its limit. comm.cpp, broadcast_coalesced: flat copies of weights and buffers, two under way at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.data_parallel import DDP
from trainledger.facts.dtypes import DType
from trainledger.ledger.book import Book
from trainledger.lines.line import Account, Line

LIMITS = len(("first", "later"))
WHY = "flat, reduced over all ranks as soon as its gradients are there"


def bucket_sizes(gradients: Sequence[int], first: int, later: int) -> Iterator[int]:
    """Bytes of each bucket for gradients of these bytes, in the order in which they are ready."""
    filled, limit = 0, first
    for size in gradients:
        filled += size
        if filled >= limit:
            yield filled
            filled, limit = 0, later
    if filled:
        yield filled


def flat_copies(tensors: Sequence[tuple[DType, int]], limit: int) -> list[tuple[DType, int]]:
    """Dtype and elements of each flat copy of these tensors (dtype, elements); none where one tensor is its own."""
    found: list[tuple[int, DType, int]] = []
    for dtype in dict.fromkeys(dtype for dtype, _ in tensors):
        start, count, filled = 0, 0, 0
        own = [(index, size) for index, (kind, size) in enumerate(tensors) if kind == dtype]
        for index, size in own:
            start = start if count else index
            count, filled = count + 1, filled + size
            if dtype.bytes_of(filled) >= limit or index == own[-1][0]:
                found.append((start, dtype, filled if count > 1 else 0))
                count = filled = 0
    return [(dtype, size) for _, dtype, size in sorted(found, key=lambda one: one[0])]


def broadcast(tensors: Sequence[tuple[DType, int]]) -> tuple[list[tuple[DType, int]], list[int]]:
    """The flat copies (dtype, elements) in which rank 0's weights and buffers (dtype, elements) are sent, and their
    births and deaths: a copy's number plus one, its negative."""
    copies = flat_copies(tensors, DDP.broadcast)
    events: list[int] = []
    for number in range(len(copies) + DDP.under_way):
        if number >= DDP.under_way:
            events.append(DDP.under_way - number - 1)
        if number < len(copies):
            events.append(number + 1)
    return copies, [event for event in events if copies[abs(event) - 1][1]]


def broadcast_events(book: Book, tensors: Sequence[tuple[DType, int]]) -> tuple[int, ...]:
    """Births and deaths of the lines of these flat copies."""
    copies, events = broadcast(tensors)
    name = "flat copy of weights to broadcast"
    lines = [
        book.tensor(Account.BUCKETS, name, (Axis(Dim.ELEMENTS, size),), dtype, DDP.source) if size else 0
        for dtype, size in copies
    ]
    return tuple(lines[event - 1] + 1 if event > 0 else -lines[-event - 1] - 1 for event in events)


def bucket_lines(book: Book, sizes: Sequence[int], dtype: DType, cap: int) -> list[tuple[int, int]]:
    """Lines of the buckets with their copies, for gradients of these elements in their order. A `cap` of 0 means the
    default limits; a negative one, a single bucket of everything."""
    width = dtype.bytes_of(1)
    first, later = (cap or DDP.first_bucket, cap or DDP.bucket) if cap >= 0 else (sum(sizes) * width,) * LIMITS
    found: list[tuple[int, int]] = []
    for bucket in bucket_sizes([size * width for size in sizes], first, later):
        dims = (Axis(Dim.ELEMENTS, bucket // width),)
        name = f"bucket of {bucket // width:,} gradients"
        line = book.add(Line(Account.BUCKETS, name, dims, dtype, CUDA.rounded(bucket), Basis.COUNTED, DDP.source, WHY))
        found.append((line, 1))
    return found
