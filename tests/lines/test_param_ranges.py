"""What one rank of Megatron's distributed optimizer owns; ranges by its own code are frozen beside the buffers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lines.test_param_buffers import buckets, groups, numels, some
from trainledger.lines.param_buffers import Wrap, buffers
from trainledger.lines.param_ranges import Range, shard


def test_a_range_counted_from_elsewhere() -> None:
    assert Range(10, 14).less(8) == (2, 6)
    assert Range(10, 14).size == 4


@given(numels, groups, buckets, st.booleans())
def test_ranks_own_every_element_of_every_parameter_once(
    sizes: list[int], ranks: int, bucket: int | None, shared: bool
) -> None:
    (buffer,) = buffers(some(sizes, shared), Wrap(ranks, ranks, bucket=bucket))
    owned: dict[str, list[int]] = {}
    for rank in range(ranks):
        for piece in shard(buffer, rank):
            assert piece.world.size == piece.local.size == piece.within.size == piece.in_bucket.size > 0
            owned.setdefault(piece.parameter.name, []).extend(range(*piece.within))
    assert {name: sorted(found) for name, found in owned.items()} == {
        one.name: list(range(one.elements)) for one in some(sizes)
    }


@given(numels, st.integers(0, 6))
def test_twice_the_ranks_never_own_more_and_never_pad_less(sizes: list[int], power: int) -> None:
    found = [buffers(some(sizes), Wrap(ranks, ranks))[0] for ranks in (2**power, 2 ** (power + 1))]
    fullest = [
        max(sum(one.world.size for one in shard(buffer, rank)) for rank in range(buffer.ranks)) for buffer in found
    ]
    assert fullest[0] >= fullest[1]
    assert found[0].elements <= found[1].elements


def test_a_rank_that_is_not_there() -> None:
    (buffer,) = buffers(some([10]), Wrap(4, 4))
    with pytest.raises(ValueError, match="not one of 4"):
        shard(buffer, 4)


def test_a_replicated_buffer_is_not_divided() -> None:
    (buffer,) = buffers(some([10]), Wrap(4, 4, distributed=False))
    with pytest.raises(ValueError, match="only the distributed optimizer"):
        shard(buffer, 0)
