"""Runs that begin as the one without a bound does: they end as those from the first event on."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.allocator.streams import streams
from trainledger.allocator.conf import parse_conf
from trainledger.allocator.replay import finished, replay
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.state import state_of
from trainledger.allocator.stem import Stem, Tried, Unbounded, copied
from trainledger.allocator.stream import Builder, Stream
from trainledger.base.units import MIB

CONFS = ("", "max_split_size_mb:30", "roundup_power2_divisions:4", "large_segment_size_mb:32")


def stem_of(stream: Stream, conf: str = "") -> Stem:
    whole = Unbounded(parse_conf(conf))
    assert whole.run(stream)
    return Stem(stream, whole)


@settings(max_examples=200, deadline=None)
@given(streams(), st.sampled_from(CONFS), st.lists(st.integers(0, 200), max_size=8))
def test_a_run_from_the_stem_ends_as_one_from_the_start(stream: Stream, conf: str, sizes: list[int]) -> None:
    stem, read, before = stem_of(stream, conf), parse_conf(conf), 0
    for capacity in (size * 2 * MIB for size in sorted(sizes)):
        tried = stem.at(before, capacity)
        assert finished(tried, tried.run(stream, tried.at)) == replay(stream, read, capacity)
        before = capacity


@settings(max_examples=200, deadline=None)
@given(streams(), st.sampled_from(CONFS), st.lists(st.integers(0, 200), min_size=2, max_size=8))
def test_a_run_stands_for_those_on_devices_that_would_not_have_changed_it(
    stream: Stream, conf: str, sizes: list[int]
) -> None:
    stem, read, known, before = stem_of(stream, conf), parse_conf(conf), Tried(), 0
    capacities = sorted(size * 2 * MIB for size in sizes)
    for capacity in capacities:
        tried = stem.at(before, capacity)
        known.added(tried, tried.run(stream, tried.at))
        before = capacity
        for other in capacities:
            if other >= capacity and (same := known.at(other)) is not None:
                assert finished(*same) == replay(stream, read, other)


def test_a_run_that_was_refused_nothing_stands_for_every_larger_device() -> None:
    builder = Builder()
    for _ in range(3):
        builder.alloc(30 * MIB)
    stream, known = builder.build(), Tried()
    tried = stem_of(stream).at(0, 100 * MIB)
    known.added(tried, tried.run(stream, tried.at))
    assert known.at(89 * MIB) is None
    assert known.at(90 * MIB) == (tried, True)
    assert known.at(2**40) == (tried, True)


@settings(max_examples=200, deadline=None)
@given(streams(), st.integers(0, 80))
def test_a_copy_goes_on_as_its_original_and_leaves_it_alone(stream: Stream, start: int) -> None:
    simulator, other = Simulator(), Simulator()
    for one in (simulator, other):
        one.run(stream, 0, start)
    twin, at = copied(simulator, 2**40), min(start, len(stream))
    assert twin.run(stream, at)
    assert state_of(simulator) == state_of(other)
    assert simulator.run(stream, at)
    assert finished(simulator, True) == finished(twin, True)
    assert state_of(simulator) == state_of(twin)


def test_the_stem_ends_before_the_first_request_that_does_not_fit() -> None:
    builder = Builder()
    for ident in [builder.alloc(30 * MIB) for _ in range(4)]:
        builder.free(ident)
    stem = stem_of(builder.build())
    assert [stem.at(size * MIB, 2**40).at for size in (0, 29, 30, 89, 90, 120)] == [0, 0, 1, 2, 3, 8]
