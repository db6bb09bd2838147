"""A snapshot's replay held against what was recorded: the reserved peak, and the first entry that differs."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.allocator.replay import Replay, finished, prepared
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import Kind
from trainledger.evidence.rebuild import Rebuilt, rebuild
from trainledger.evidence.snapshot import Snapshot

_GROWS = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first entry of the trace (from 0) where the replay goes another way (bytes, addresses)."""

    entry: int
    what: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Reserved bytes recorded and replayed at the peak and at the end, and where they part, if they do."""

    recorded_peak: int
    recorded_end: int
    replay: Replay
    first: Difference | None

    @property
    def exact(self) -> bool:
        """Whether the replay's reserved peak is the recorded one, to the byte."""
        return self.replay.peaks.reserved == self.recorded_peak


def compare(snapshot: Snapshot) -> Comparison:
    """Replay a snapshot's trace. Raises InputError where it contradicts its own segments."""
    rebuilt = rebuild(snapshot)
    end = sum(one.size for one in snapshot.segments)
    recorded = _recorded(snapshot, end)
    simulator = prepared(snapshot.conf, rebuilt.given)
    first = _first(simulator, rebuilt, snapshot, recorded)
    return Comparison(max(recorded), end, finished(simulator, True), first)


def _recorded(snapshot: Snapshot, end: int) -> list[int]:
    """Reserved bytes before the first entry and after each."""
    changes = [_GROWS.get(one.action, 0) * one.size for one in snapshot.entries]
    level = end - sum(changes)
    levels = [level]
    for change in changes:
        level += change
        levels.append(level)
    return levels


def _first(simulator: Simulator, rebuilt: Rebuilt, snapshot: Snapshot, recorded: list[int]) -> Difference | None:
    """Run all events; where an allocation first lands elsewhere, or takes other memory from the device."""
    first: Difference | None = None
    for entry, (kind, ident, size, stream) in zip(rebuilt.entries, rebuilt.stream, strict=True):
        simulator.step(kind, ident, size, stream)
        if first is not None or kind != Kind.ALLOC:
            continue
        address, wanted = simulator.blocks[ident].address, snapshot.entries[entry].address
        if simulator.reserved != recorded[entry + 1]:
            text = f"reserved is {simulator.reserved} and was {recorded[entry + 1]}"
            first = Difference(entry, f"after a request of {size} bytes {text}")
        elif address != wanted and not snapshot.conf.expandable:  # a trace does not say where a range begins
            first = Difference(entry, f"a request of {size} bytes is at {address} and was at {wanted}")
    return first
