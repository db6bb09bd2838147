"""Lines run straight on the allocator: as the stream of them would, at every turn, and when two states are one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.allocator.streams import CONFS, SIZES, segments
from trainledger.allocator.conf import DEFAULT, parse_conf
from trainledger.allocator.lined import Lined
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import StreamError, stream_of
from trainledger.base.units import MIB
from trainledger.lines.stream import Segment


@settings(max_examples=150, deadline=None)
@given(some=segments(), text=st.sampled_from(CONFS), queued=st.frozensets(st.integers(0, len(SIZES) - 1), max_size=3))
def test_lines_run_as_their_stream(some: tuple[Segment, ...], text: str, queued: frozenset[int]) -> None:
    conf, streams = parse_conf(text), [number % 2 for number in range(len(SIZES))]
    try:
        stream = stream_of(some, SIZES, streams, queued)
    except StreamError:
        return
    whole = Simulator(conf)
    whole.run(stream)
    lined = Lined(Simulator(conf), SIZES, streams, queued)
    for _, events, repeat, lane in some:
        for _ in range(repeat):
            lined.run(events, lane)
    assert (lined.at, lined.allocated, lined.peak) == (len(stream), whole.allocated, whole.peak_allocated)
    assert (lined.most, lined.simulator.reserved) == (whole.peak_reserved, whole.reserved)
    assert lined.peak_at == whole.peak_allocated_at


@settings(max_examples=100, deadline=None)
@given(some=segments(), more=segments(), text=st.sampled_from(CONFS))
def test_what_follows_an_equal_state_is_equal(some: tuple[Segment, ...], more: tuple[Segment, ...], text: str) -> None:
    """Turns from two equal states reach the same peaks and leave equal states."""
    lined = Lined(Simulator(parse_conf(text)), SIZES, [0] * len(SIZES), frozenset())
    states, seen = [], []
    for _ in range(4):
        states.append(lined.state())
        lined.peak = 0
        try:
            for _, events, repeat, lane in (*some, *more):
                for _ in range(repeat):
                    lined.run(events, lane)
        except StreamError:
            return
        seen.append((lined.peak, lined.simulator.reserved, lined.state()))
    for first, second, one, other in zip(states, states[1:], seen, seen[1:], strict=False):
        if first is not None and first == second:
            assert one == other


def test_states_differ_by_what_lies_where_and_by_what_was_taken() -> None:
    lined = Lined(Simulator(DEFAULT), [30 * MIB, 5 * MIB], [0, 0], frozenset())
    empty = lined.state()
    lined.run((1, 2))
    held = lined.state()
    lined.run((-1, -2))
    assert empty != held
    assert lined.state() != empty  # the device has given what is free now
    lined.run((1, 2))
    assert lined.state() == held
    assert Lined(Simulator(parse_conf("garbage_collection_threshold:0.6")), [1], [0], frozenset()).state() is None


def test_a_micro_batch_leaves_its_own_layers_last_one_first() -> None:
    """Two layers of two micro-batches: the first goes backward while the second is there; a line that was born in no
    lane dies by age."""
    lined = Lined(Simulator(DEFAULT), [30 * MIB, 30 * MIB], [0, 0], frozenset())
    for lane in (1, 1, 2, 2):
        lined.run((1,), lane)
    lined.run((2,))
    taken = [one.address for one in lined._live[0]]
    for left in (taken[0], *taken[2:]), taken[2:], taken[2:3], []:
        lined.run((-1,), 1 if len(left) > 1 else 2)
        assert [one.address for one in lined._live[0]] == list(left)
    lined.run((-2,), 1)
    assert lined.allocated == 0


def test_a_line_that_dies_too_often_is_refused() -> None:
    lined = Lined(Simulator(DEFAULT), [512], [0], frozenset())
    with pytest.raises(StreamError, match="line 0 dies and is not live"):
        lined.run((1, -1, -1))
