"""The device as the allocator sees it: how much it gives, and at which addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainledger.allocator.conf import Conf
from trainledger.facts.allocator_settings import ADDRESSES


class Device:
    """What was taken from the device (bytes) and how often more was wanted than there was.

    `allowed`: per_process_memory_fraction of the device; None without a bound. `highest`: bytes taken at most;
    `refused`: the least that would have been taken had there been that much (None: nothing was refused). `addresses`:
    where the segments to come lie, when that is known (a recorded run); else each lies behind the one before.
    """

    __slots__ = (
        "addresses", "allowed", "capacity", "extent", "highest", "refused", "released", "released_bytes", "reserved",
        "retries", "segments", "top",
    )  # fmt: skip

    def __init__(self, conf: Conf, capacity: int | None, total: int | None) -> None:
        self.capacity = capacity
        whole = capacity if total is None else total
        # a device that is larger by an amount that is not known has no bound of its own below the capacity
        bound = total is not None or conf.fraction < 1
        self.allowed = int(conf.fraction * whole) if bound and whole is not None else None
        self.extent = ADDRESSES.range if whole is None else whole + whole // ADDRESSES.spare
        self.reserved = self.retries = self.segments = self.released = self.released_bytes = self.highest = 0
        self.refused: int | None = None
        self.top = ADDRESSES.first
        self.addresses: Iterator[int] = iter(())

    def at(self, addresses: Iterable[int]) -> None:
        """The addresses of the segments to come, in order."""
        self.addresses = iter(addresses)

    def allows(self, size: int) -> bool:
        """Whether `size` bytes more stay within the part of the device that the process may take."""
        return self.allowed is None or self.reserved + size <= self.allowed

    def take(self, size: int) -> bool:
        """Take `size` bytes; False when there is not that much."""
        total = self.reserved + size
        if self.capacity is not None and total > self.capacity:
            self.refused = total if self.refused is None else min(total, self.refused)
            return False
        self.reserved = total
        if total > self.highest:
            self.highest = total
        return True

    def place(self, size: int, page: int = 1) -> int:
        """The address of a new segment or range, a multiple of `page`."""
        address = next(self.addresses, None)
        if address is None:
            address = -(-self.top // page) * page
        self.top = max(self.top, address + size)
        return address

    def give(self, size: int) -> None:
        """Give `size` bytes back."""
        self.reserved -= size
        self.released += 1
        self.released_bytes += size
