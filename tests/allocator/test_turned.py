"""Lines on pools that remember their turns: as an allocator that runs every event, at every turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.allocator.streams import SIZES, segments
from trainledger.allocator import pools
from trainledger.allocator.conf import DEFAULT, parse_conf
from trainledger.allocator.lined import Lined
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import StreamError
from trainledger.allocator.turned import Turned, lines_on
from trainledger.base.units import MIB
from trainledger.facts.allocator_settings import RECALL
from trainledger.lines.stream import Events, Segment

PLAIN = (
    "",
    "expandable_segments:True",
    "roundup_power2_divisions:4",
    "large_segment_size_mb:32",
    "garbage_collection_threshold:0.6",
    "expandable_segments:True,large_segment_size_mb:32",
)
STREAMS = [number % 2 for number in range(len(SIZES))]
SIX = st.frozensets(st.integers(0, len(SIZES) - 1), max_size=6)
LOOPED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def seen(lines: Turned | Lined) -> tuple[int, ...]:
    return lines.at, lines.allocated, lines.peak, lines.peak_at, lines.most, lines.reserved


def compare(some: tuple[Segment, ...], text: str, queued: frozenset[int], rounds: int) -> None:
    """Segments, several times over, on both; the maxima are set back as a replay sets them back."""
    conf = parse_conf(text)
    turned, lined = Turned(conf, SIZES, STREAMS, queued), Lined(Simulator(conf), SIZES, STREAMS, queued)
    for _, events, repeat, lane in some * rounds:
        for lines in (turned, lined):
            lines.peak, lines.peak_at, lines.most = lines.allocated, lines.at - 1, lines.reserved
        for _ in range(repeat):
            try:
                lined.run(events, lane)
            except StreamError:
                with pytest.raises(StreamError):
                    turned.run(events, lane)
                return
            turned.run(events, lane)
            assert seen(turned) == seen(lined)


@LOOPED
@given(some=segments(), text=st.sampled_from(PLAIN), queued=SIX)
def test_rounds_that_are_looked_up_are_as_if_every_event_ran(
    some: tuple[Segment, ...], text: str, queued: frozenset[int]
) -> None:
    compare(some, text, queued, 5)


@LOOPED
@given(some=segments(), text=st.sampled_from(PLAIN), queued=SIX, kept=st.integers(0, 20))
def test_pools_that_stop_keeping_states_go_on_as_before(
    monkeypatch: pytest.MonkeyPatch, some: tuple[Segment, ...], text: str, queued: frozenset[int], kept: int
) -> None:
    monkeypatch.setattr(pools, "RECALL", replace(RECALL, worth=0, lost=kept))
    compare(some, text, queued, 3)


@LOOPED
@given(data=st.data(), ahead=st.integers(1, 4), queued=st.booleans(), text=st.sampled_from(PLAIN))
def test_a_pipelines_rounds_are_looked_up_exactly(data: st.DataObject, ahead: int, queued: bool, text: str) -> None:
    """Micro-batches in flight: forwards that leave some lines, backwards that let go of the oldest or newest of them,
    with tensors of either turn that come and go in any order; once more after other blocks have come between."""
    numbers = st.permutations(range(len(SIZES)))
    forward, backward = data.draw(numbers)[:6], data.draw(numbers)[:6]
    left = tuple(data.draw(st.permutations(forward))[:2])
    gone = tuple(line for line in data.draw(st.permutations(forward)) if line not in left)
    fore: Events = (*(line + 1 for line in forward), *(-line - 1 for line in gone))
    inner = tuple(line for line in backward if line not in left)
    back: Events = (
        *(line + 1 for line in inner), *(-line - 1 for line in left),
        *(-line - 1 for line in data.draw(st.permutations(inner))),
    )  # fmt: skip
    step = (
        Segment("forward", fore, ahead),
        *(Segment("forward", fore), Segment("backward", back)) * 8,
        Segment("backward", back, ahead),
    )
    compare((*step, Segment("optimizer", (1, 4, 9)), *step), text, frozenset(left if queued else ()), 2)


def test_a_turn_that_comes_again_runs_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Turned(DEFAULT, [30 * MIB, 5 * MIB], [0, 0], frozenset())
    lines.run((1, 2, -1, -2))
    lines.run((1, 2, -1, -2))  # what the first took from the device is there
    monkeypatch.setattr(pools.Pool, "_stepped", None)
    lines.run((1, 2, -1, -2))
    assert (lines.at, lines.allocated, lines.peak) == (12, 0, 35 * MIB)


def test_states_differ_by_what_lies_where_and_by_what_was_taken() -> None:
    lines = Turned(DEFAULT, [30 * MIB, 5 * MIB], [0, 0], frozenset())
    empty = lines.state()
    lines.run((1, 2))
    held = lines.state()
    lines.run((-1, -2))
    assert empty != held
    assert lines.state() != empty  # the device has given what is free now
    lines.run((1, 2))
    assert lines.state() == held


@pytest.mark.parametrize(
    ("text", "kind"),
    [(text, Turned) for text in PLAIN]
    + [
        ("expandable_segments:True,max_split_size_mb:30", Lined),
        ("max_split_size_mb:30", Lined),
        ("max_split_size_mb:30,garbage_collection_threshold:0.6", Lined),
    ],
)
def test_what_goes_by_more_than_free_blocks_runs_every_event(text: str, kind: type) -> None:
    assert type(lines_on(parse_conf(text), [512], [0], frozenset())) is kind


def test_a_line_that_dies_too_often_is_refused() -> None:
    with pytest.raises(StreamError, match="line 0 dies and is not live"):
        Turned(DEFAULT, [512], [0], frozenset()).run((1, -1, -1))
