"""Follows storages: a birth when one is first seen, a death when its last owner lets go.

Nothing here keeps a tensor alive. A storage's own weak reference calls back when the storage goes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """A storage that was born: bytes, and what was known then; `account` where that was settled at once."""

    size: int
    op: str
    module: str
    node: str
    phase: str
    dtype: str
    shape: tuple[int, ...]
    account: str = ""
    stream: int = 0


class StorageLedger:
    """Births, deaths and the moments between which they fall. An accumulator that lives while one trace is made."""

    def __init__(self) -> None:
        self.births: list[Seen] = []
        self.accounts: dict[int, str] = {}  # by a birth's number, where it is settled
        self.labels: dict[int, tuple[str, str]] = {}  # names that say more than module and operation
        self.stretches: list[tuple[str, list[int]]] = []
        self.phase = ""
        self.stream = 0  # on which what is born now is made
        self.closed = False
        self.bytes = 0
        self._events: list[int] = []
        self._known: dict[int, tuple[int, Any]] = {}  # by storage: its birth's number (-1: on the host), weak reference
        self._live: set[int] = set()

    def enter(self, moment: str, phase: str) -> None:
        """What comes next belongs to this moment."""
        self.phase = phase
        self._events = []
        self.stretches.append((moment, self._events))

    def see(self, tensor: Any, op: str, module: str, node: str = "") -> int:
        """The number of a tensor's storage, which is born if it was never seen; -1 for none (no bytes, the host)."""
        storage = tensor.untyped_storage()
        place = storage._cdata
        known = self._known.get(place)
        size = storage.nbytes()
        if known is not None:
            number = known[0]
            if number >= 0 and (self.births[number].size != size or number not in self._live):
                return self._resized(place, number, size)
            return number
        if size == 0:
            return -1
        number = len(self.births)
        dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
        seen = Seen(size, op, module, node, self.phase, dtype, shape, stream=self.stream)
        self._known[place] = (number, weakref.ref(storage, self._gone(place)))
        self._born(seen)
        return number

    def _resized(self, place: int, number: int, size: int) -> int:
        """A storage that grows is born again; one without bytes waits."""
        old, known = self.births[number], self._known[place]
        if number in self._live:
            self._dead(number)
        if not size:
            return number
        again = replace(old, size=size, phase=self.phase)
        if number in self.accounts:
            self.accounts[len(self.births)] = self.accounts[number]
        self._known[place] = (len(self.births), known[1])
        self._born(again)
        return len(self.births) - 1

    def inside(self, seen: Seen) -> int:
        """Something alive without a tensor, inside a kernel: its number, for `leave`."""
        self._born(seen)
        return len(self.births) - 1

    def leave(self, number: int) -> None:
        """What `inside` began ends."""
        self._dead(number)

    def ignore(self, tensor: Any) -> None:
        """A storage that a real run keeps on the host: it gives no event."""
        storage = tensor.untyped_storage()
        place = storage._cdata
        if place not in self._known:
            self._known[place] = (-1, weakref.ref(storage, self._gone(place)))

    def on_host(self, tensor: Any) -> bool:
        """Whether the tensor's storage is one that `ignore` was told of."""
        known = self._known.get(tensor.untyped_storage()._cdata)
        return known is not None and known[0] < 0

    def number(self, tensor: Any) -> int:
        """The number of a storage that was seen; -1 for another."""
        known = self._known.get(tensor.untyped_storage()._cdata)
        return -1 if known is None else known[0]

    def settle(self, number: int, account: str, again: bool = False) -> None:
        """A birth belongs to an account; the first word counts, unless `again`."""
        if number >= 0 and (again or number not in self.accounts):
            self.accounts[number] = account

    def live(self) -> frozenset[int]:
        """Numbers of what lives now."""
        return frozenset(self._live)

    def _born(self, seen: Seen) -> None:
        number = len(self.births)
        self.births.append(seen)
        if seen.account:
            self.accounts[number] = seen.account
        self.bytes += seen.size
        self._events.append(number + 1)
        self._live.add(number)

    def _dead(self, number: int) -> None:
        self.bytes -= self.births[number].size
        self._events.append(-number - 1)
        self._live.discard(number)

    def _gone(self, place: int) -> Callable[[Any], None]:
        def gone(_: Any) -> None:
            number = self._known.pop(place, (-1, None))[0]
            if number in self._live and not self.closed:
                self._dead(number)

        return gone
