"""A pool as an automaton: what it takes, splits, joins and gives back, and when a state is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainledger.allocator import pools
from trainledger.allocator.blocks import BITS
from trainledger.allocator.pools import ADDRESS, Pool
from trainledger.allocator.turns import Program, Want, Way, turn_of
from trainledger.base.units import MIB
from trainledger.facts.allocator_settings import RECALL
from trainledger.lines.stream import EMPTY, Events


def program(events: Events, *sizes: int, olds: tuple[tuple[int, int], ...] = ()) -> Program:
    """Lines of these sizes, in shared segments of 20 MiB."""
    ways = [Way(0, Want(size << BITS, size, MIB, 20 * MIB)) for size in sizes]
    return turn_of(events, olds, ways, frozenset()).programs[0]


def lies(blocks: tuple[int, ...]) -> list[tuple[int, int]]:
    """Address and size of blocks."""
    return [(block & ADDRESS, block >> BITS) for block in blocks]


def test_births_split_a_segment_from_its_front_and_deaths_join_what_is_free() -> None:
    pool = Pool()
    born = pool.run(program((1, 2, 3), 4 * MIB, 6 * MIB, 8 * MIB), ())
    assert lies(born.left) == [(0, 4 * MIB), (4 * MIB, 6 * MIB), (10 * MIB, 8 * MIB)]
    assert born.taken == ((0, 20 * MIB),)
    gone = pool.run(program((-1, -2), 4 * MIB, 6 * MIB, olds=((0, 1), (1, 1))), born.left[:2])
    assert gone.state is not None
    assert lies(gone.state.free) == [(18 * MIB, 2 * MIB), (0, 10 * MIB)]


def test_segments_that_follow_each_other_do_not_join() -> None:
    pool = Pool()
    found = pool.run(program((1, 2, -1, -2), 20 * MIB, 20 * MIB), ())
    assert found.state is not None
    assert [size for _, size in lies(found.state.free)] == [20 * MIB, 20 * MIB]
    given = pool.run(program((EMPTY,), 20 * MIB), ())
    assert given.taken == ((0, -40 * MIB),)
    assert given.state is not None
    assert given.state.free == ()


def test_a_rest_too_small_to_split_off_stays_with_the_block() -> None:
    pool = Pool()
    held = pool.run(program((1,), 20 * MIB - 512), ())
    assert held.ends == ((0, 512),)
    gone = pool.run(program((1, -1), 20 * MIB - 512, olds=((0, 1),)), held.left)
    assert gone.ends == ((1, -512), (0, 512))


def test_the_same_free_blocks_are_the_same_state() -> None:
    pool = Pool()
    turn = program((1, -1), 4 * MIB)
    first, second = pool.run(turn, ()), pool.run(turn, ())
    assert first.state is second.state
    assert pool.run(turn, ()) is second


def test_states_are_kept_as_long_as_they_save_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "RECALL", replace(RECALL, worth=1, lost=1))
    pool = Pool()
    turn = program((1, -1), 4 * MIB)
    pool.run(turn, ())
    assert pool.run(turn, ()).state is None  # two free blocks were kept, no step was saved
    assert lies(pool.run(program((1,), 4 * MIB), ()).left) == [(0, 4 * MIB)]
