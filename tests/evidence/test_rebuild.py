"""The state at a trace's first entry, and its replay: on snapshots that the simulator itself recorded."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.allocator.streams import streams
from tests.evidence.recorder import record
from trainledger.allocator.stream import Builder, Kind, Stream
from trainledger.base.problems import InputError
from trainledger.base.units import MIB
from trainledger.evidence.compare import compare
from trainledger.evidence.rebuild import rebuild
from trainledger.evidence.snapshot import Snapshot, read_snapshot

CONFS = ("", "expandable_segments:True", "max_split_size_mb:30", "roundup_power2_divisions:4")


def snapshot(stream: Stream, conf: str = "", capacity: int | None = None, cut: int = 0) -> Snapshot:
    """A recorded snapshot, written and read again."""
    return read_snapshot(pickle.dumps(record(stream, conf, capacity, cut)))


def training() -> Stream:
    """Weights, then three steps; between the first two the cache is emptied; a gradient is used on a second stream."""
    builder = Builder()
    for _ in range(4):
        builder.alloc(11 * MIB)
        builder.alloc(300)
    for step in range(3):
        saved = [builder.alloc(size) for size in (6 * MIB, 3 * MIB, 21 * MIB + 512, 2048, 12 * MIB) * 3]
        for ident in reversed(saved):
            gradient = builder.alloc(7 * MIB, 1)
            builder.free(ident)
            builder.record(gradient, 0)
            builder.free(gradient)
            if ident % 2:
                builder.done(0)
        if not step:
            builder.done(0)
            builder.empty()
    return builder.build()


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("cut", [0, 7, 30, 77, 150])
def test_replays_what_was_recorded(conf: str, cut: int) -> None:
    found = compare(snapshot(training(), conf, cut=cut))
    assert found.first is None
    assert found.exact
    assert found.replay.ends.reserved == found.recorded_end


@pytest.mark.parametrize("cut", [0, 40])
def test_replays_a_retry_as_an_empty_cache(cut: int) -> None:
    found = compare(snapshot(training(), capacity=140 * MIB, cut=cut))
    assert (found.exact, found.first) == (True, None)


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(CONFS))
def test_replays_any_whole_trace(stream: Stream, conf: str) -> None:
    found = compare(snapshot(stream, conf))
    assert (found.exact, found.first) == (True, None)


def test_the_state_before_the_trace() -> None:
    """Two tensors of 6 MiB, the first freed in the trace, and 2 + 6 MiB of the segment's 20 free at its start."""
    builder = Builder()
    first, second, third = (builder.alloc(6 * MIB) for _ in range(3))
    builder.free(third)
    builder.free(first)
    builder.alloc(5 * MIB)
    builder.free(second)
    (segment,) = rebuild(snapshot(builder.build(), cut=6)).given.state  # the segment, three of them, a free of two
    assert [(piece.size // MIB, bool(piece.ident)) for piece in segment.pieces] == [(6, True), (6, True), (8, False)]


def test_blocks_larger_than_what_was_asked_for() -> None:
    """A rest of 1 MiB stays with the block: known from the segment's end, though the tensor is gone at the end."""
    builder = Builder()
    builder.free(builder.alloc(11 * MIB))
    rebuilt = rebuild(snapshot(builder.build(), cut=2))
    (segment,) = rebuilt.given.state
    assert [piece.size for piece in segment.pieces] == [12 * MIB]
    assert list(rebuilt.stream.kinds) == [Kind.FREE]


def test_a_free_that_completes_later_waits() -> None:
    builder = Builder()
    first = builder.alloc(6 * MIB)
    builder.record(first, 9)
    builder.free(first)
    builder.alloc(6 * MIB)
    builder.done(9)
    builder.alloc(6 * MIB)
    kinds = list(rebuild(snapshot(builder.build())).stream.kinds)
    assert kinds == [Kind.ALLOC, Kind.RECORD, Kind.FREE, Kind.ALLOC, Kind.DONE, Kind.ALLOC]


def test_a_trace_that_contradicts_its_segments_is_refused() -> None:
    raw = record(training())
    raw["segments"] = raw["segments"][1:]
    with pytest.raises(InputError, match="device_traces"):
        rebuild(read_snapshot(pickle.dumps(raw)))


def test_the_first_difference_is_named() -> None:
    """One tensor, in a segment that the rules would fill from its front, recorded 512 bytes further on."""
    builder = Builder()
    builder.alloc(6 * MIB)
    builder.free(builder.alloc(6 * MIB))
    raw = record(builder.build())
    for entry in raw["device_traces"][0][-3:]:
        entry["addr"] += 512
    found = compare(read_snapshot(pickle.dumps(raw)))
    assert found.first is not None
    assert found.first.entry == 2
    assert found.first.what.startswith("a request of 6291456 bytes is at ")
    assert found.exact  # the peak is the same all the same
