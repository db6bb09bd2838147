"""What a rank reads of tensors that others have cut: counts by hand, and what holds of every cut."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import plan_of
from trainledger.answer.resume_cuts import Cut, placed, read_of
from trainledger.model.build import model_of


def all_of(old: Cut, new: Cut) -> list[int]:
    parts = new.tp if new.along is not None else 1
    return [read_of(old, new, part, at).read for part in range(parts) for at in range(new.shard)]


@pytest.mark.parametrize(
    ("before", "after", "read", "of"),
    [
        (4, 4, [25] * 4, 1),
        (4, 2, [50] * 2, 2),
        (2, 4, [50] * 4, 1),  # half of what is read is another rank's
        (4, 3, [50, 50, 50], 2),  # 34, 34 and 32 rows of pieces of 25
        (3, 4, [34, 68, 66, 32], 1),
    ],
)
def test_rows_are_cut_anew(before: int, after: int, read: list[int], of: int) -> None:
    old, new = (Cut((100, 7), None, 1, count) for count in (before, after))
    assert all_of(old, new) == [7 * rows for rows in read]
    assert len(read_of(old, new, 0, 0).of) == of


def test_parts_of_a_column_and_rows_in_them() -> None:
    """Eight columns over two ranks and four rows over two: a rank of one part of columns reads both halves of rows."""
    old, new = Cut((4, 8), 1, 2, 2), Cut((4, 8), None, 1, 2)
    assert read_of(old, new, 0, 0).of == {(0, 0), (1, 0)}
    assert all_of(old, new) == [16, 16]
    spread = Cut((8, 4), 0, 2, 2)  # rows over two ranks, each part's over two more
    assert all_of(spread, Cut((8, 4), None, 1, 2)) == [16, 16]
    assert read_of(spread, Cut((8, 4), None, 1, 2), 0, 1).of == {(1, 0), (1, 1)}


def test_a_scalar_is_read_by_all() -> None:
    assert all_of(Cut((), None, 1, 4), Cut((), None, 1, 2)) == [1, 1]


DIMS = st.lists(st.integers(1, 40), min_size=1, max_size=3)


@given(DIMS, st.integers(1, 9), st.integers(1, 9))
def test_all_ranks_together_read_at_least_what_is_stored(dims: list[int], before: int, after: int) -> None:
    old, new = Cut(tuple(dims), None, 1, before), Cut(tuple(dims), None, 1, after)
    held = [read_of(old, new, 0, at) for at in range(after)]
    assert sum(one.own for one in held) == prod(dims)
    assert sum(one.read for one in held) >= prod(dims)
    assert all(one.read >= one.own for one in held)
    assert {at for one in held for _, at in one.of} == {at for at in range(before) if read_of(old, old, 0, at).own}


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 6))
def test_they_read_it_once_where_fewer_ranks_divide_it(unit: int, ranks: int, times: int) -> None:
    rows = unit * ranks * times
    old, new = Cut((rows, 3), None, 1, ranks * times), Cut((rows, 3), None, 1, ranks)
    assert sum(all_of(old, new)) == 3 * rows
    assert sum(all_of(new, old)) == 3 * rows * times  # and as often as there are more


def test_weights_lie_on_their_stage() -> None:
    plan = plan_of(
        parallel={"strategy": "fsdp2", "dp": 2, "pp": 3, "tp": 2, "schedule": "1f1b", "reshard_after_forward": False},
        stack={"framework": "torchtitan", "versions": {"torch": "2.14.1"}, "loss": "full"},
    )  # fmt: skip
    found = {one.weight.name: one for one in placed(plan, model_of(plan), 2)}
    assert [*found["model.embed_tokens.weight"].stages] == [0]
    assert [*found["lm_head.weight"].stages] == [2]
    layers = sorted(layer for held in found["self_attn.q_proj.weight"].stages.values() for layer in held)
    assert layers == [0, 1, 2]
    assert found["self_attn.q_proj.weight"].cut.along == 0
    assert found["self_attn.o_proj.weight"].cut.along == 1
    assert found["input_layernorm.weight"].cut.along is None
