"""A pool of expandable segments as an automaton: which pages are mapped, which block grows, what is given back."""

from __future__ import annotations

from tests.allocator.test_pools import lies, program
from trainledger.allocator.pools import Outcome
from trainledger.allocator.ranges import RangePool
from trainledger.base.units import MIB
from trainledger.facts.allocator_settings import ADDRESSES
from trainledger.lines.stream import EMPTY

PAGE = 20 * MIB
THREE = (20 * MIB, 10 * MIB, 30 * MIB)


def free(found: Outcome) -> list[tuple[int, int]]:
    assert found.state is not None
    return lies(found.state.free)


def test_missing_pages_are_mapped_behind_the_last_block_that_is_free() -> None:
    found = RangePool(PAGE).run(program((1, 2, 3), *THREE), ())
    assert lies(found.left) == [(0, 20 * MIB), (20 * MIB, 10 * MIB), (30 * MIB, 30 * MIB)]
    assert found.taken == ((0, 20 * MIB), (1, 20 * MIB), (2, 20 * MIB))
    assert found.ends == ()


def test_what_is_given_back_between_live_blocks_is_mapped_again_only_where_there_is_room() -> None:
    pool = RangePool(PAGE)
    born = pool.run(program((1, 2, 3), *THREE), ())
    gone = pool.run(program((-1, -2, EMPTY), *THREE, olds=((0, 1), (1, 1))), born.left[:2])
    assert gone.taken == ((2, -20 * MIB),)
    assert free(gone) == [(20 * MIB, 10 * MIB)]
    wide = pool.run(program((1,), 40 * MIB), ())
    assert lies(wide.left) == [(60 * MIB, 40 * MIB)]
    back = pool.run(program((1,), 30 * MIB), ())
    assert (lies(back.left), back.taken) == ([(0, 30 * MIB)], ((0, 20 * MIB),))


def test_a_block_that_can_grow_is_taken_after_one_that_cannot() -> None:
    """The second, larger one lies between live blocks; the first, which would do, before pages that are not mapped."""
    pool = RangePool(PAGE)
    born = pool.run(program((1, 2, 3), 15 * MIB, 5 * MIB, 30 * MIB), ())
    gone = pool.run(program((-1,), 15 * MIB, olds=((0, 1),)), born.left[:1])
    assert free(gone) == [(50 * MIB, 10 * MIB), (0, 15 * MIB)]
    assert lies(pool.run(program((1,), 8 * MIB), ()).left) == [(0, 8 * MIB)]


def test_a_range_that_holds_nothing_is_given_up() -> None:
    pool = RangePool(PAGE)
    found = pool.run(program((1, -1, EMPTY, 1), 30 * MIB), ())
    assert found.taken == ((0, 40 * MIB), (2, -40 * MIB), (3, 40 * MIB))
    ((start, _),) = lies(found.left)
    assert start >= ADDRESSES.range
