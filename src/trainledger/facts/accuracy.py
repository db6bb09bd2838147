"""How accuracy is published."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Tail:
    """The percentile of |error| that stands for the tail (linear interpolation between rows)."""

    percentile: float
    source: Source


TAIL = Tail(95.0, Source("numpy.percentile, method linear", "numpy documentation", "2.0"))

# Keys of a plan that move its size most; runs whose record assumes one of them are scored apart too.
INPUTS = ("batch.sequence", "adapter.r", "adapter.dtype")
