"""What holds for every stream under every setting."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.allocator.streams import CONFS, streams
from trainledger.allocator.conf import parse_conf
from trainledger.allocator.replay import Given, history, prepared, replay
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.state import State, state_of
from trainledger.allocator.stream import Kind, Stream
from trainledger.base.units import MIB

CAPACITIES = st.sampled_from((None, 80 * MIB, 200 * MIB, 1000 * MIB))


def checked(simulator: Simulator) -> State:
    """The segments, after checking that they are sound and that the counters add up to them."""
    state = state_of(simulator)
    assert sum(one.size for one in state) == simulator.reserved
    assert sum(one.allocated for one in state) == simulator.allocated
    assert sum(one.size - one.free for one in state) == simulator.active
    ends = 0
    for segment in state:
        assert segment.address >= ends  # no overlap of segments; blocks follow one another within
        ends = segment.address + segment.size
        free = [not piece.ident and not piece.waits for piece in segment.pieces]
        assert not any(one and other for one, other in pairwise(free))  # neighbours are merged
        assert all(piece.size > 0 and piece.size % 512 == 0 for piece in segment.pieces)
    for pool in (*simulator.small.values(), *simulator.large.values()):
        assert pool.keys == sorted(pool.by_key)
    return state


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(CONFS), CAPACITIES)
def test_every_state_is_sound(stream: Stream, conf: str, capacity: int | None) -> None:
    simulator = prepared(parse_conf(conf), Given(capacity))
    for event in stream:
        if not simulator.step(*event):
            break
        assert simulator.allocated <= simulator.active <= simulator.reserved
        assert capacity is None or simulator.reserved <= capacity
        checked(simulator)
    assert simulator.peak_reserved >= simulator.peak_active >= simulator.peak_allocated >= simulator.allocated


@settings(max_examples=100, deadline=None)
@given(streams(returned=True), st.sampled_from(CONFS))
def test_everything_is_returned_at_the_end(stream: Stream, conf: str) -> None:
    simulator = prepared(parse_conf(conf), Given())
    assert simulator.run(stream)
    assert checked(simulator) == ()
    assert (simulator.allocated, simulator.active, simulator.reserved, simulator.device.segments) == (0, 0, 0, 0)


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(CONFS))
def test_reserved_only_grows_while_nothing_is_given_back(stream: Stream, conf: str) -> None:
    _, _, reserved = history(stream, parse_conf(conf))
    for at, (before, after) in enumerate(pairwise(reserved), 1):
        assert after >= before or stream.kinds[at] == Kind.EMPTY


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from(CONFS), CAPACITIES)
def test_one_call_and_single_steps_agree(stream: Stream, conf: str, capacity: int | None) -> None:
    whole = replay(stream, parse_conf(conf), capacity)
    allocated, active, reserved = history(stream, parse_conf(conf), Given(capacity))
    assert len(reserved) == (len(stream) if whole.oom is None else whole.oom)
    if len(stream) and whole.oom is None:
        ends = whole.ends
        assert (allocated[-1], active[-1], reserved[-1]) == (ends.allocated, ends.active, ends.reserved)
    assert whole.peaks.reserved == max(reserved, default=0)
    assert whole.peaks.allocated == max(allocated, default=0)


@settings(max_examples=100, deadline=None)
@given(streams(), st.sampled_from([conf for conf in CONFS if "threshold" not in conf]), st.data())
def test_a_replay_goes_on_from_a_state(stream: Stream, conf: str, data: st.DataObject) -> None:
    """Split a stream anywhere where nothing waits: loading the segments of the first part changes nothing after it."""
    first = prepared(parse_conf(conf), Given(total=1000 * MIB))
    cut = data.draw(st.integers(0, len(stream)))
    first.run(stream, 0, cut)
    if any(piece.waits for one in state_of(first) for piece in one.pieces) or any(
        block.uses for block in first.blocks.values()
    ):
        return
    second = prepared(parse_conf(conf), Given(state=state_of(first), total=1000 * MIB))
    if parse_conf(conf).expandable and len(first.small) + len(first.large) > 1:
        return  # the order of the ranges is another then
    first.run(stream, cut)
    second.run(stream, cut)
    assert [one.pieces for one in state_of(first)] == [one.pieces for one in state_of(second)]
