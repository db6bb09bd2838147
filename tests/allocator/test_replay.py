"""Replays: peaks and where they are, and the search for the smallest capacity."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.allocator.streams import CONFS, streams
from trainledger.allocator.conf import parse_conf
from trainledger.allocator.replay import Given, least, replay, smallest_capacity
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.state import state_of
from trainledger.allocator.stream import Builder, Stream, StreamError
from trainledger.base.units import MIB


def fragmented() -> Stream:
    """Blocks of 30 MiB, every second one freed, then two of 40: 240 MiB without a bound."""
    builder = Builder()
    idents = [builder.alloc(30 * MIB) for _ in range(6)]
    for ident in idents[::2]:
        builder.free(ident)
    builder.alloc(40 * MIB)
    builder.free(builder.alloc(20 * MIB))
    return builder.build()


def test_peaks_and_where_they_are() -> None:
    result = replay(fragmented())
    assert result.fits
    assert (result.peaks.allocated, result.peaks.active, result.peaks.reserved) == (180 * MIB, 180 * MIB, 220 * MIB)
    assert (result.allocated.at, result.reserved.at) == (5, 9)
    assert result.reserved.allocated == 130 * MIB
    assert result.reserved.unused == pytest.approx(90 / 220)
    assert (result.ends.allocated, result.ends.reserved) == (130 * MIB, 220 * MIB)
    assert (result.segments.count, result.segments.small, result.segments.large) == (7, 0, 220 * MIB)
    assert (result.segments.idle, result.segments.largest_free) == (90 * MIB, 30 * MIB)


def test_state_at_a_peak() -> None:
    stream = fragmented()
    simulator = Simulator()
    simulator.run(stream, 0, replay(stream).reserved.at + 1)
    state = state_of(simulator)
    assert sum(one.size for one in state) == 220 * MIB
    assert sum(one.idle for one in state) == 3


def test_smallest_capacity_needs_retries() -> None:
    """Without a bound 220 MiB; 180 are live at once; on 180 the 40 fit after the three of 30 went back."""
    seen: list[tuple[int, int]] = []
    found = smallest_capacity(fragmented(), report=lambda done, expected: seen.append((done, expected)))
    assert (found.capacity, found.fails) == (180 * MIB, 178 * MIB)
    assert found.unbounded.peaks.reserved == 220 * MIB
    assert (found.replay.retries, found.replay.released) == (1, 3)
    assert found.replay.released_bytes == 90 * MIB
    assert seen
    assert all(done <= expected for done, expected in seen)


def test_smallest_capacity_of_nothing() -> None:
    found = smallest_capacity(Builder().build())
    assert found.replay.fits
    assert found.capacity <= found.step


def test_smallest_capacity_under_a_fraction() -> None:
    found = smallest_capacity(fragmented(), parse_conf("per_process_memory_fraction:0.5"))
    assert found.capacity == 360 * MIB


def test_the_step_is_the_callers() -> None:
    assert smallest_capacity(fragmented(), step=100 * MIB).capacity == 200 * MIB


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(CONFS))
def test_smallest_capacity_is_enough_and_less_is_not(stream: Stream, conf: str) -> None:
    read = parse_conf(conf)
    found = smallest_capacity(stream, read)
    assert found.replay.fits
    assert replay(stream, read, found.capacity).fits
    assert found.capacity >= least(stream, read)
    assert found.fails == 0 or not replay(stream, read, found.fails).fits
    if "threshold" not in conf:
        assert found.capacity <= found.unbounded.peaks.reserved + found.step


def test_a_bound_below_the_device() -> None:
    """The capacity is what is left of the device; the fraction is one of the whole device."""
    builder = Builder()
    for _ in range(3):
        builder.alloc(30 * MIB)
    conf = parse_conf("per_process_memory_fraction:0.5")
    assert replay(builder.build(), conf, given=Given(90 * MIB, 200 * MIB)).fits
    assert replay(builder.build(), conf, given=Given(90 * MIB, 160 * MIB)).oom == 2


def test_impossible_streams_are_refused() -> None:
    builder = Builder()
    builder.free(3)
    with pytest.raises(StreamError, match="tensor 3 is not live"):
        replay(builder.build())
