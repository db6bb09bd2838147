"""Turns as programs: which copy dies, what outlives a turn, and where most is allocated."""

from __future__ import annotations

import pytest

from trainledger.allocator.blocks import BITS
from trainledger.allocator.stream import StreamError
from trainledger.allocator.turns import Olds, Program, Want, Way, turn_of
from trainledger.base.units import MIB
from trainledger.lines.stream import EMPTY


def way(size: int, pool: int = 0) -> Way:
    return Way(pool, Want(size << BITS, size, MIB, size))


WAYS = (way(4 * MIB), way(6 * MIB), way(512, 1))


def slots(program: Program) -> tuple[int, ...]:
    return tuple(slot for slot, *_ in program.steps)


def test_an_older_copy_dies_before_one_born_in_the_turn() -> None:
    turn = turn_of((1, -1, 1), ((0, 1),), WAYS, frozenset())
    (program,) = turn.programs
    assert turn.olds == (Olds(0, 0, 1, False),)
    assert slots(program) == (2, -1, 3)
    assert (program.left, program.lines) == ((2, 3), (0, 0))
    assert (program.born, program.dies) == ((-1, -1, 0, 2), (-1, 1, -1, -1))


def test_without_an_older_copy_the_last_dies_and_of_queued_lines_the_first() -> None:
    events = (1, 1, -1)
    (last,), (first,) = (turn_of(events, (), WAYS, queued).programs for queued in (frozenset[int](), frozenset({0})))
    assert (slots(last), last.left) == ((1, 2, -2), (1,))
    assert (slots(first), first.left) == ((1, 2, -1), (2,))


def test_each_pool_has_its_program_and_all_are_emptied() -> None:
    large, small = turn_of((1, 3, EMPTY, -1), (), WAYS, frozenset()).programs
    assert (large.pool, slots(large), large.emptied) == (0, (1, EMPTY, -1), (2,))
    assert (small.pool, slots(small), small.emptied) == (1, (1, EMPTY), (2,))


def test_the_highest_birth_is_the_first_that_reaches_it_with_the_ends_of_blocks() -> None:
    turn = turn_of((1, -1, 2, -2, 2, 1), (), WAYS, frozenset())
    assert turn.high == (5, 10 * MIB)
    assert turn.net == 10 * MIB
    assert turn.highest(((0, 7 * MIB), (1, -7 * MIB))) == (0, 11 * MIB)
    assert turn.highest(((0, 6 * MIB), (1, -6 * MIB))) == (0, 10 * MIB)
    assert turn_of((-1,), ((0, 1),), WAYS, frozenset()).high is None


def test_a_line_that_dies_too_often_is_refused() -> None:
    with pytest.raises(StreamError, match="line 1 dies and is not live"):
        turn_of((1, -2), (), WAYS, frozenset())
