"""ZeRO-1 and -2: how weights are flattened, padded, owned and reduced."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger.registered import Slot
from trainledger.ledger.zero import Dtypes, Zero, extremes, fillings, groups_of, slices
from trainledger.model.program import Weight


@cache
def slot(number: int, size: int) -> Slot:
    return Slot(number, "", Weight(f"w{number}", (Axis(Dim.ELEMENTS, size),)), size)


def how(ranks: int, **changes: Any) -> Zero:
    given: dict[str, Any] = {
        "stage": 2, "ranks": ranks, "rank": 0, "version": "0.19.8", "dtypes": Dtypes(BF16, BF16, BF16, FP32),
        "bucket": 100, "overlap": False, "contiguous": True, "scatter": True, "round_robin": False, "offload": None,
        "checked": False,
    }  # fmt: skip
    return Zero(**{**given, **changes})


def test_a_group_is_padded_to_two_elements_a_rank() -> None:
    (group,) = groups_of([[slot(0, 10), slot(1, 7)]], how(4))
    assert group.part * 4 == 24
    assert group.owners[slot(0, 10)] == ((0, 6), (1, 4))
    assert group.owners[slot(1, 7)] == ((1, 2), (2, 5))


def test_a_rank_owns_what_its_part_touches() -> None:
    (group,) = groups_of([[slot(0, 10), slot(1, 7)]], how(4))
    assert group.owned(1) == (slot(0, 10), slot(1, 7))
    assert (group.piece(slot(0, 10), 1), group.piece(slot(1, 7), 1), group.piece(slot(1, 7), 3)) == (4, 2, 0)
    assert extremes([group], 4) == ((1,), 3)


def test_the_fullest_rank_keeps_most_or_a_gradient_that_comes_first_or_last() -> None:
    groups = groups_of([[slot(0, 8), slot(1, 6), slot(2, 6), slot(3, 4), slot(4, 8)]], how(4))
    assert extremes(groups, 4) == ((1, 3, 0), 0)
    assert extremes((), 4) == ((0,), 0)


def test_parameters_are_dealt_out_in_turn() -> None:
    (group,) = groups_of([[slot(n, 8) for n in range(4)]], how(2, round_robin=True))
    assert [one.at for one in group.slots] == [0, 2, 1, 3]


def test_a_bucket_is_cut_by_owner_and_neighbours_are_joined() -> None:
    slots = [slot(0, 10), slot(1, 7)]
    groups = groups_of([slots], how(4))
    assert slices(slots, groups, True) == [(0, 6), (1, 6), (2, 5)]
    assert slices(slots, groups, False) == [(0, 6), (1, 4), (1, 2), (2, 5)]


def test_copies_are_closed_by_the_piece_that_exceeds_the_limit() -> None:
    assert list(fillings([3, 3, 3, 1], 5)) == [(3, 3), (3, 1)]
    assert list(fillings([], 5)) == []


@pytest.mark.parametrize(("version", "compact"), [("0.19.7", False), ("0.19.8", True), ("", True)])
def test_fp32_gradients_of_this_rank_alone_from_a_release_on(version: str, compact: bool) -> None:
    assert how(4, version=version, dtypes=Dtypes(BF16, FP32, FP32, FP32)).compact is compact


def test_only_stage_1_adds_gradients_up_in_the_wider_dtype() -> None:
    wide = Dtypes(BF16, FP32, FP32, FP32)
    assert (how(4, stage=1, dtypes=wide).came, how(4, dtypes=wide).came) == (FP32, BF16)
