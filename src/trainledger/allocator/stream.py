"""A stream of what a program asks of the allocator: allocations, frees, uses on other streams, and what completes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto

from trainledger.lines.stream import EMPTY, Segment


class Kind(IntEnum):
    """What an event is.

    ALLOC: `ident` gets `size` bytes on `stream`; FREE: `ident` is given back; RECORD: `ident` is used on `stream` as
    well (record_stream); DONE: all that was asked of `stream` so far has run; EMPTY: empty_cache.
    """

    ALLOC = auto()
    FREE = auto()
    RECORD = auto()
    DONE = auto()
    EMPTY = auto()


ALLOC, FREE = int(Kind.ALLOC), int(Kind.FREE)  # looked up for every event of a stream


class StreamError(ValueError):
    """The stream is not one that a program could have made. Says at which event (from 0)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Events in order, one entry each: kind, ident, size (bytes asked for), stream. Entries that do not apply are 0."""

    kinds: array[int]
    idents: array[int]
    sizes: array[int]
    streams: array[int]

    def __len__(self) -> int:
        return len(self.kinds)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Kind, ident, size and stream of each event."""
        return zip(self.kinds, self.idents, self.sizes, self.streams, strict=True)


class Builder:
    """Collects events. Idents are given out from 1 on; ident 0 is a tensor of no bytes, which takes no memory."""

    __slots__ = ("_idents", "_kinds", "_last", "_sizes", "_streams")

    def __init__(self) -> None:
        self._kinds, self._idents = array("b"), array("q")
        self._sizes, self._streams = array("q"), array("q")
        self._last = 0

    def alloc(self, size: int, stream: int = 0) -> int:
        """A tensor of `size` bytes on a stream. Returns its ident."""
        if size == 0:
            return 0
        self._last += 1
        self.add(ALLOC, self._last, size, stream)
        return self._last

    def free(self, ident: int) -> None:
        """The last reference to a tensor goes."""
        if ident:
            self.add(FREE, ident)

    def record(self, ident: int, stream: int) -> None:
        """record_stream: a later free waits until all that is asked of `stream` by then is done."""
        if ident:
            self.add(Kind.RECORD, ident, 0, stream)

    def done(self, stream: int) -> None:
        """All that was asked of a stream so far has run: what waits for it is free from the next allocation on."""
        self.add(Kind.DONE, 0, 0, stream)

    def empty(self) -> None:
        """empty_cache."""
        self.add(Kind.EMPTY)

    def add(self, kind: int, ident: int = 0, size: int = 0, stream: int = 0) -> None:
        """An event as it is, with an ident of the caller's own."""
        self._kinds.append(kind)
        self._idents.append(ident)
        self._sizes.append(size)
        self._streams.append(stream)

    def __len__(self) -> int:
        """Events so far."""
        return len(self._kinds)

    def build(self) -> Stream:
        """The stream of what was collected so far."""
        return Stream(self._kinds[:], self._idents[:], self._sizes[:], self._streams[:])


def own(lanes: Sequence[int], before: int, lane: int) -> int:
    """Of the first `before` copies of a line, born in these lanes, the number (from 1 on) of the last that was born in
    `lane`; of the last of all where none was."""
    return next((at for at in range(before, 0, -1) if lanes[at - 1] == lane), before)


class Writer:
    """Writes lines' births and deaths as a stream, one run of segments after another. Lines are told by their number,
    and keep it from one run to the next, where their sizes may be others: a line dies with the bytes it was born with.

    `streams`: the stream of each line; copies of lines that are `queued` die in the order in which they were born.
    """

    __slots__ = ("_builder", "_lanes", "_live", "_queued", "_streams")

    def __init__(self, streams: Sequence[int], queued: frozenset[int] = frozenset()) -> None:
        self._builder, self._streams, self._queued = Builder(), streams, queued
        self._live: list[list[int]] = [[] for _ in streams]
        self._lanes: dict[int, int] = {}  # of tensors that were born in one

    def write(self, segments: Iterable[Segment], sizes: Sequence[int]) -> None:
        """Segments of lines of these `sizes` (bytes asked for).

        Of several copies of a line, one born before this turn of the segment dies first, as a layer's input gives way
        to its output; among those the one born last, since layers are left in backward in the opposite order. In a
        lane, one that was born in it dies before others.
        Raises StreamError when a line dies more often than it was born.
        """
        for _, events, repeat, lane in segments:
            for _ in range(repeat):
                self._turn(events, sizes, lane)

    def _turn(self, events: Iterable[int], sizes: Sequence[int], lane: int) -> None:
        live, streams, alloc, free = self._live, self._streams, self._builder.alloc, self._builder.free
        older: dict[int, int] = {}  # of lines born in this turn: how many copies are older than it
        for event in events:
            if event > 0:
                line = event - 1
                copies = live[line]
                if line not in older:
                    older[line] = len(copies)
                copies.append(alloc(sizes[line], streams[line]))
                if lane:
                    self._lanes[copies[-1]] = lane
                continue
            if event == EMPTY:
                self._builder.empty()
                continue
            line = -event - 1
            copies = live[line]
            if not copies:
                raise StreamError(f"line {line} dies and is not live")
            before = 1 if line in self._queued else older.get(line, 0)  # the first of all, or the last of the older
            if lane and line not in self._queued:
                before = own([self._lanes.get(one, 0) for one in copies], before or len(copies), lane)
            if before and line in older:
                older[line] -= before <= older[line]
            free(copies.pop(before - 1))

    def __len__(self) -> int:
        """Events so far."""
        return len(self._builder)

    def build(self) -> Stream:
        """The stream of what was written so far."""
        return self._builder.build()


def stream_of(
    segments: Iterable[Segment], sizes: Sequence[int], streams: Sequence[int] = (), queued: frozenset[int] = frozenset()
) -> Stream:
    """The stream of lines' births and deaths: `sizes` (bytes asked for) and `streams` (none: all 0) by line.

    Raises StreamError when a line dies more often than it was born.
    """
    writer = Writer(streams or [0] * len(sizes), queued)
    writer.write(segments, sizes)
    return writer.build()
