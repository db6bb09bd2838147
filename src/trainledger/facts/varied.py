"""How runs over samples of many lengths are replayed."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Varied:
    """`micro_batches` drawn by chance, in each of `orders` (seeded by their number, so that answers repeat).

    Where only the median and the longest of the lengths are known, they are taken as log-normal about the median, and
    the longest as `deviations` standard deviations of the logarithm away from it. `accumulation`: micro-batches of a
    step that are replayed, where it has more: the further ones take nothing.
    """

    micro_batches: int
    orders: int
    deviations: float
    accumulation: int
    source: Source

    @property
    def middle(self) -> int:
        """Which of the orders, by what they take, is in the middle."""
        return self.orders // 2


VARIED = Varied(
    1000,
    5,
    3.0,
    2,
    Source(
        "this program's own replays",
        "tests/answer/test_varied.py: only a micro-batch longer than all before it takes memory from the device, and "
        "of 1,000 in random order about 7 are",
        "2026-11",
    ),
)
