"""Model states: bad input, and what must hold for any count of parameters and ranks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.answer.quick import QuickInput, quick
from trainledger.answer.states import rank_bytes, states
from trainledger.base.problems import InputError
from trainledger.facts.recipes import RECIPES, SPLITS

COUNTS = st.integers(1, 10**13)
RANKS = st.integers(1, 100_000)


def test_all_problems_at_once() -> None:
    with pytest.raises(InputError) as caught:
        states(0, ("mixd", "nothing"), 0)
    paths = [problem.path for problem in caught.value.problems]
    assert paths == ["params", "ranks", "recipe", "recipe"]
    assert "Did you mean mixed?" in str(caught.value)


def test_quick_lists_all_problems_at_once() -> None:
    with pytest.raises(InputError) as caught:
        quick(QuickInput(7, 0, 0, 1, 1, recipe="x", strategy="zero4", activations="ful"))
    assert [problem.path for problem in caught.value.problems] == [
        "layers",
        "hidden",
        "recipe",
        "strategy",
        "activations",
    ]


@given(count=COUNTS, ranks=RANKS)
def test_each_stage_holds_no_more_than_the_one_before(count: int, ranks: int) -> None:
    for recipe in RECIPES.values():
        sizes = [rank_bytes(recipe, SPLITS[name], count, ranks) for name in ("ddp", "zero1", "zero2", "zero3")]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] > 0
        assert sizes[-1] * ranks >= sizes[0]  # rounding up never loses an element


@given(count=COUNTS)
def test_kinds_and_shares_add_up(count: int) -> None:
    answer = states(count)
    for recipe in answer.recipes:
        assert sum(size for _, size in recipe.by_kind) == recipe.bytes_per_parameter
        assert recipe.total_bytes == recipe.bytes_per_parameter * count
        for _, parts in recipe.shares:
            assert sum(share for _, share in parts) == pytest.approx(1)


def test_json_has_the_contract() -> None:
    answer = json.loads(json.dumps(states(8_030_261_248, (), 8).to_dict()))
    assert [recipe["name"] for recipe in answer["recipes"]] == list(RECIPES)
    for recipe in answer["recipes"]:
        assert {"name", "bytes_per_parameter", "by_kind", "total_bytes", "per_rank"} <= set(recipe)
        assert set(recipe["per_rank"]) == set(SPLITS)


def test_a_recipe_named_twice_is_answered_once() -> None:
    assert [recipe.name for recipe in states(10, ("fp32", "mixed", "fp32")).recipes] == ["fp32", "mixed"]
