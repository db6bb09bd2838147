"""From a snapshot to a replay: the allocator's state at the first entry of the trace, and the stream after it.

A trace names addresses and the sizes asked for, not those of the blocks. Walking it backward from the final segments
gives the segments and the live tensors at its start; a block's size follows from its neighbours.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass

from trainledger.allocator.replay import Given
from trainledger.allocator.state import Piece, SegmentState
from trainledger.allocator.stream import Builder, Kind, Stream
from trainledger.base.problems import InputError, Problem
from trainledger.evidence.snapshot import Entry, Snapshot
from trainledger.facts.allocator import CUDA


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a replay needs, and what it is held against: `entries` has the trace entry of each event of the stream."""

    given: Given
    stream: Stream
    entries: tuple[int, ...]


class _Tensor:
    """One tensor of the trace: its address, size asked for, block (0: not known yet), and the ident of its events."""

    __slots__ = ("address", "asked", "block", "early", "ident")

    def __init__(self, ident: int, address: int, asked: int, early: bool) -> None:
        self.ident, self.address, self.asked, self.early = ident, address, asked, early
        self.block = 0


Key = tuple[int, int]  # entry, address


def rebuild(snapshot: Snapshot) -> Rebuilt:
    """The state before the first entry and the events after it. Raises InputError where the trace contradicts it."""
    tensors, early = _tensors(snapshot)
    ranges = _ranges_before(snapshot)
    _measure(snapshot, tensors, early, dict(ranges))
    state = _state(ranges, early, snapshot)
    stream, entries = _stream(snapshot, tensors)
    addresses = tuple(one.address for one in snapshot.entries if one.action == "segment_alloc")
    return Rebuilt(Given(state=state, addresses=addresses), stream, entries)


def _contradiction(what: str) -> InputError:
    return InputError([Problem("device_traces", what, "a trace that leads to the segments at its end")])


def _tensors(snapshot: Snapshot) -> tuple[dict[int, _Tensor], list[_Tensor]]:
    """The tensor of each entry that makes or frees one, and those that were there before the first entry."""
    by_entry: dict[int, _Tensor] = {}
    early: list[_Tensor] = []
    live: dict[int, _Tensor] = {}
    count = 0
    for index, entry in enumerate(snapshot.entries):
        if entry.action not in ("alloc", "free_requested", "free_completed"):
            continue
        tensor = live.get(entry.address)
        if entry.action == "alloc" or tensor is None:
            count += 1
            tensor = live[entry.address] = _Tensor(count, entry.address, entry.size, entry.action != "alloc")
            if tensor.early:
                early.append(tensor)
        if entry.action == "free_completed":
            del live[entry.address]
        by_entry[index] = tensor
    for segment in snapshot.segments:
        for block in segment.blocks:
            if block.used:
                if block.address not in live:
                    count += 1
                    early.append(_Tensor(count, block.address, block.size, True))
                    live[block.address] = early[-1]
                live[block.address].block = block.size
    return by_entry, early


Ranges = dict[int, tuple[int, int, bool]]  # address of a segment: bytes, stream, small


def _ranges_before(snapshot: Snapshot) -> Ranges:
    """The segments before the first entry."""
    ranges: Ranges = {one.address: (one.size, one.stream, one.small) for one in snapshot.segments}
    for entry in reversed(snapshot.entries):
        if entry.action == "segment_alloc":
            if ranges.pop(entry.address, None) is None:
                raise _contradiction(f"a segment at {entry.address} is opened and is not there after it")
        elif entry.action == "segment_free":
            ranges[entry.address] = (entry.size, entry.stream, entry.size == CUDA.small_segment)
        elif entry.action in ("segment_map", "segment_unmap"):
            _remap(ranges, entry)
    return ranges


def _remap(ranges: Ranges, entry: Entry) -> None:
    """Undo the mapping or unmapping of pages: runs of mapped pages grow together or fall apart."""
    start, end = entry.address, entry.address + entry.size
    if entry.action == "segment_map":
        inside = next((one for one, (size, _, _) in ranges.items() if one <= start and end <= one + size), None)
        if inside is None:
            raise _contradiction(f"pages at {start} are mapped and are not there after it")
        size, stream, small = ranges.pop(inside)
        if inside < start:
            ranges[inside] = (start - inside, stream, small)
        if end < inside + size:
            ranges[end] = (inside + size - end, stream, small)
        return
    small = entry.size < CUDA.shared
    before = next((one for one, (size, _, _) in ranges.items() if one + size == start), None)
    if before is not None:
        start, (_, _, small) = before, ranges.pop(before)
    if end in ranges:
        size, _, small = ranges.pop(end)
        end += size
    ranges[start] = (end - start, entry.stream, small)


def _measure(snapshot: Snapshot, tensors: dict[int, _Tensor], early: list[_Tensor], ranges: Ranges) -> None:
    """Find the blocks' sizes. A large block whose rest was too small to split off reaches up to the next live block
    or the segment's end; what lies there when the tensor is made, or while an early one lives, tells."""
    starts, live = sorted(ranges), sorted(one.address for one in early)
    at = {one.address: one for one in early}
    for tensor in early:
        _bound(tensor, snapshot, live, _end(starts, ranges, tensor.address))
    for index, entry in enumerate(snapshot.entries):
        if entry.action in ("segment_alloc", "segment_map"):
            insort(starts, entry.address)
            ranges[entry.address] = (entry.size, entry.stream, entry.size == CUDA.small_segment)
        elif entry.action == "segment_free" and entry.address in ranges:
            starts.remove(entry.address)
            del ranges[entry.address]
        elif entry.action == "alloc":
            place = bisect_left(live, entry.address)
            before = at[live[place - 1]] if place else None
            if (
                before is not None
                and before.early
                and 0 <= entry.address - before.address - _least(snapshot, before) <= _rest(snapshot, before)
            ):
                before.block = entry.address - before.address
            live.insert(place, entry.address)
            at[entry.address] = tensors[index]
            _bound(tensors[index], snapshot, live, _end(starts, ranges, entry.address))
        elif entry.action == "free_completed" and index in tensors:
            del live[bisect_left(live, entry.address)]


def _least(snapshot: Snapshot, tensor: _Tensor) -> int:
    return snapshot.conf.rounded(tensor.asked)


def _rest(snapshot: Snapshot, tensor: _Tensor) -> int:
    """The largest rest that is not split off (bytes); under max_split_size that of an oversize block is any rest."""
    least, conf = _least(snapshot, tensor), snapshot.conf
    if least <= CUDA.small or conf.expandable:
        return CUDA.granule - 1
    if conf.max_split is not None and least >= conf.max_split:
        return conf.rounding
    return CUDA.remainder


def _end(starts: list[int], ranges: Ranges, address: int) -> int:
    place = bisect_right(starts, address) - 1
    start = starts[place] if place >= 0 else address
    size = ranges[start][0] if start in ranges else 0
    return start + size if address < start + size else address


def _bound(tensor: _Tensor, snapshot: Snapshot, live: list[int], end: int) -> None:
    """Set the block's size from what comes after it, unless the final segments gave it."""
    if tensor.block:
        return
    least = _least(snapshot, tensor)
    place = bisect_right(live, tensor.address)
    room = min(live[place] if place < len(live) else end, end) - tensor.address
    tensor.block = room if 0 <= room - least <= _rest(snapshot, tensor) else least


def _state(ranges: Ranges, early: list[_Tensor], snapshot: Snapshot) -> tuple[SegmentState, ...]:
    """Segments with the early tensors in them and one free block wherever there is none."""
    ordered = sorted(early, key=lambda one: one.address)
    addresses = [one.address for one in ordered]
    state = []
    for start, (size, stream, small) in sorted(ranges.items()):
        pieces, at = [], start
        inside = ordered[bisect_left(addresses, start) : bisect_left(addresses, start + size)]
        for tensor in inside:
            if tensor.address < at or tensor.address + tensor.block > start + size:
                raise _contradiction(f"the tensor at {tensor.address} has no room in its segment")
            if tensor.address > at:
                pieces.append(Piece(tensor.address - at))
            pieces.append(Piece(tensor.block, tensor.ident))
            at = tensor.address + tensor.block
        if at < start + size:
            pieces.append(Piece(start + size - at))
        state.append(SegmentState(start, stream, small, tuple(pieces)))
    if sum(1 for one in state for piece in one.pieces if piece.ident) != len(early):
        raise _contradiction("tensors lie outside of the segments")
    return tuple(state)


def _stream(snapshot: Snapshot, tensors: dict[int, _Tensor]) -> tuple[Stream, tuple[int, ...]]:
    """The events of the trace. A free that completes later waits for a stream of its own, negative; giving segments
    back, asked for or before a retry, is one empty_cache: a retry that finds its memory gives back the same."""
    builder, entries = Builder(), []
    emptied = False

    def add(index: int, kind: Kind, ident: int = 0, size: int = 0, stream: int = 0) -> None:
        builder.add(kind, ident, size, stream)
        entries.append(index)

    waits: set[int] = set()
    for index, entry in enumerate(snapshot.entries):
        ident = tensors[index].ident if index in tensors else 0
        if entry.action == "alloc":
            add(index, Kind.ALLOC, ident, entry.size, entry.stream)
            emptied = False
        elif entry.action == "free_requested":
            after = snapshot.entries[index + 1] if index + 1 < len(snapshot.entries) else entry
            if after.action != "free_completed" or after.address != entry.address:
                waits.add(ident)
                add(index, Kind.RECORD, ident, 0, -ident)
            add(index, Kind.FREE, ident)
        elif entry.action == "free_completed":
            started = index > 0 and tensors.get(index - 1) is tensors[index]
            if ident in waits:
                add(index, Kind.DONE, 0, 0, -ident)
            elif not started:
                add(index, Kind.FREE, ident)  # its request lies before the trace
        elif entry.action in ("segment_free", "segment_unmap") and not emptied:
            add(index, Kind.EMPTY)
            emptied = True
    return builder.build(), tuple(entries)
