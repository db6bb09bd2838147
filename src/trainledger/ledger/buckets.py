"""The gradient buckets of DistributedDataParallel: flat tensors that hold every trained parameter's gradient once.

Source: torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size and rebuild_buckets (v2.4 to v2.13):
parameters from the last to the first; a bucket is closed by the one that reaches its limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainledger.base.dims import Axis, Dim, elements
from trainledger.base.sources import Basis
from trainledger.facts.data_parallel import DDP
from trainledger.facts.dtypes import DType
from trainledger.ledger.book import Book
from trainledger.ledger.updates import Parameter
from trainledger.lines.line import Account, Line


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


def bucket_line(book: Book, parameters: Sequence[Parameter], dtype: DType, cap: int) -> int:
    """The line of all buckets together; each is a block of its own. A `cap` of 0 means the default limits."""
    sizes = [dtype.bytes_of(elements(one.weight.dims)) for one in reversed(parameters) for _ in range(one.count)]
    buckets = list(bucket_sizes(sizes, cap or DDP.first_bucket, cap or DDP.bucket))
    unit = sum(book.unit(bucket, Account.BUCKETS) for bucket in buckets)
    count = sum(elements(one.weight.dims) * one.count for one in parameters)
    why = f"{len(buckets)} buckets, each a block of its own"
    dims = (Axis(Dim.ELEMENTS, count),)
    return book.add(Line(Account.BUCKETS, "gradient buckets", dims, dtype, unit, Basis.COUNTED, DDP.source, why))
