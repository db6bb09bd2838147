"""Actions of a pipeline rank, and what they keep in flight."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """FORWARD; BACKWARD makes the gradients of input and weights at once; INPUT and WEIGHT are its two halves."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT = "I"
    WEIGHT = "W"


class Action(NamedTuple):
    """One micro-batch (from 0) through one of the rank's model chunks (from 0), forward or backward."""

    kind: Kind
    micro_batch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind.value}{self.micro_batch}.{self.chunk}"


class Recorder:
    """Writes actions down. Micro-batches pass through a chunk in order, so that each action takes the next one."""

    __slots__ = ("_done", "_put_off", "_written")

    def __init__(self) -> None:
        self._done: dict[tuple[Kind, int], int] = defaultdict(int)
        self._put_off: deque[tuple[int, int]] = deque()
        self._written: list[Action] = []

    @property
    def actions(self) -> tuple[Action, ...]:
        """All that was written down so far."""
        return tuple(self._written)

    def done(self, kind: Kind, chunk: int) -> int:
        """How many of a chunk's micro-batches have had this kind of action; halves count as backwards."""
        return self._done[Kind.BACKWARD if kind is Kind.INPUT else kind, chunk]

    def forward(self, chunk: int) -> None:
        """Forward of the chunk's next micro-batch."""
        self._next(Kind.FORWARD, chunk)

    def backward(self, chunk: int) -> None:
        """The whole backward of the chunk's next micro-batch."""
        self._next(Kind.BACKWARD, chunk)

    def input(self, chunk: int) -> None:
        """The gradient of the input alone; that of the weights is put off."""
        self._put_off.append((self._next(Kind.INPUT, chunk), chunk))

    def weight(self, chunk: int | None = None) -> None:
        """The gradient of the weights that was put off first (of this chunk, where one is given); nothing without."""
        found = next((one for one in self._put_off if chunk is None or one[1] == chunk), None)
        if found is not None:
            self._put_off.remove(found)
            self._written.append(Action(Kind.WEIGHT, *found))

    def weights(self, chunk: int | None = None) -> None:
        """Every gradient of weights that is still put off (of this chunk, where one is given)."""
        for _ in range(sum(chunk is None or one[1] == chunk for one in self._put_off)):
            self.weight(chunk)

    def _next(self, kind: Kind, chunk: int) -> int:
        counted = Kind.BACKWARD if kind is Kind.INPUT else kind
        micro_batch = self._done[counted, chunk]
        self._done[counted, chunk] += 1
        self._written.append(Action(kind, micro_batch, chunk))
        return micro_batch


@dataclass(frozen=True, slots=True)
class Flight:
    """What a rank holds after an action: by chunk, micro-batches forwarded and not yet backwarded (`flying`), and those
    whose weight gradients are still put off (`pending`)."""

    flying: tuple[int, ...]
    pending: tuple[int, ...]

    @property
    def held(self) -> int:
        """Micro-batches of all chunks that still hold something of their forward: in flight, or put off."""
        return sum(self.flying) + sum(self.pending)


@dataclass(frozen=True, slots=True)
class InFlight:
    """The largest numbers over a step, each at its own time: (micro-batch, chunk) pairs in flight; the same by chunk;
    pairs whose weight gradients are put off; and both together."""

    most: int
    by_chunk: tuple[int, ...]
    pending: int
    held: int


def flights(actions: Iterable[Action]) -> Iterator[tuple[Action, Flight]]:
    """Each action, and what is held once it is done. A micro-batch leaves flight when its backward is done."""
    written = tuple(actions)
    chunks = 1 + max((one.chunk for one in written), default=0)
    flying, pending = [0] * chunks, [0] * chunks
    for action in written:
        kind, chunk = action.kind, action.chunk
        flying[chunk] += (kind is Kind.FORWARD) - (kind in (Kind.BACKWARD, Kind.INPUT))
        pending[chunk] += (kind is Kind.INPUT) - (kind is Kind.WEIGHT)
        yield action, Flight(tuple(flying), tuple(pending))


def in_flight(actions: Iterable[Action]) -> InFlight:
    """The largest numbers of micro-batches in flight and put off on one rank, over all of its actions."""
    states = [flight for _, flight in flights(actions)] or [Flight((0,), (0,))]
    return InFlight(
        max(sum(one.flying) for one in states),
        tuple(map(max, zip(*(one.flying for one in states), strict=True))),
        max(sum(one.pending) for one in states),
        max(one.held for one in states),
    )
