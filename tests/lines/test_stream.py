"""Moments and peaks from births and deaths of lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis, Source
from trainledger.facts.dtypes import UINT8
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import EMPTY, Segment, fold, net, total

HERE = Source("a test", "tests/lines")


def lines(*units: int) -> list[Line]:
    return [
        Line(Account.FORWARD, f"tensor {at}", (Axis(Dim.ELEMENTS, unit),), UINT8, unit, Basis.COUNTED, HERE)
        for at, unit in enumerate(units)
    ]


def test_a_moment_is_its_largest_instant() -> None:
    made = lines(10, 100)
    (moment,) = fold(made, [Segment("forward", (1, 2, -2, 1))])
    assert (moment.name, moment.allocated, moment.live) == ("forward", 110, ((0, 1), (1, 1)))


def test_equal_layers_are_counted_not_written_out() -> None:
    made = lines(10, 3)
    growing = Segment("forward", (1, 2, -2), 1000)
    shrinking = Segment("backward", (2, -1, -2), 1000)
    forward, backward = fold(made, [growing, shrinking])
    assert forward.allocated == 1000 * 10 + 3
    assert backward.allocated == 1000 * 10 + 3
    assert forward.live == ((0, 1000), (1, 1))
    assert backward.live == ((0, 1000), (1, 1))


def test_a_moment_that_comes_again_keeps_its_largest() -> None:
    made = lines(5)
    first, second = fold(made, [Segment("a", (1, -1)), Segment("b", (1,)), Segment("a", (1, -1))])
    assert (first.name, first.allocated) == ("a", 10)
    assert (second.name, second.allocated) == ("b", 5)


def test_the_end_of_a_moment_without_births_is_not_negative() -> None:
    (first, second) = fold(lines(7), [Segment("a", (1,)), Segment("b", (-1,))])
    assert (first.allocated, second.allocated) == (7, 7)


def test_giving_back_what_is_cached_changes_no_line() -> None:
    made = lines(10, 3)
    plain = [Segment("init", (1, -1)), Segment("forward", (1, 2))]
    emptied = [Segment("init", (1, EMPTY, -1, EMPTY)), Segment("forward", (EMPTY, 1, 2))]
    assert fold(made, emptied) == fold(made, plain)


@st.composite
def segments(draw: st.DrawFn) -> tuple[list[int], list[Segment]]:
    units = draw(st.lists(st.integers(1, 1 << 30), min_size=1, max_size=5))
    alive = [0] * len(units)
    made: list[Segment] = []
    for _ in range(draw(st.integers(1, 6))):
        events: list[int] = []
        for _ in range(draw(st.integers(0, 8))):
            at = draw(st.integers(0, len(units) - 1))
            if alive[at] and draw(st.booleans()):
                alive[at] -= 1
                events.append(-at - 1)
            else:
                alive[at] += 1
                events.append(at + 1)
        grows = all(event > 0 for event in events)
        repeat = draw(st.integers(1, 4)) if grows else 1
        for event in events * (repeat - 1):
            alive[event - 1] += 1
        made.append(Segment(draw(st.sampled_from("abc")), tuple(events), repeat))
    return units, made


@given(segments())
def test_live_lines_add_up_and_the_peak_is_that_of_the_events_one_by_one(case: tuple[list[int], list[Segment]]) -> None:
    units, made = case
    table = lines(*units)
    found = fold(table, made)
    level, highest = 0, {segment.moment: 0 for segment in made}
    for segment in made:
        highest[segment.moment] = max(highest[segment.moment], level)
        for event in segment.events * segment.repeat:
            level += units[event - 1] if event > 0 else -units[-event - 1]
            highest[segment.moment] = max(highest[segment.moment], level)
    for moment in found:
        assert total(table, moment.live) == moment.allocated == highest[moment.name]
        assert all(copies > 0 for _, copies in moment.live)


RUNS = st.lists(st.integers(-4, 4), max_size=8).map(tuple)


@given(st.lists(RUNS, min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=8))
def test_net_counts_equal_runs_once_and_keeps_the_order_of_lines(
    runs: list[tuple[int, ...]], turns: list[tuple[int, int]]
) -> None:
    segments = [Segment("step", runs[at % len(runs)], repeat) for at, repeat in turns]
    written = [event for one in segments for event in one.events * one.repeat if event]
    order = list(dict.fromkeys(abs(event) - 1 for event in written))
    assert list(net(segments).items()) == [(line, written.count(line + 1) - written.count(-line - 1)) for line in order]
