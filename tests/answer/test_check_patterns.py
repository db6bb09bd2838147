"""PEFT's options of modules and layers: what it reads passes, all else is refused with the option's key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.answer.check_patterns import pattern_problems
from trainledger.base.problems import InputError


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("exclude_modules", ["q_proj", ".*_proj", ["q_proj"], []], [3, True, "(", [3], {"q_proj": 1}]),
        ("layers_to_transform", [0, [0, 2]], ["3", True, -1, 1.5, [True], ["1"], {"1": 1}]),
        ("rank_pattern", [{}, {"q_proj": 4}], [3, "x", ["x"], {"(": 3}, {"q": 0}, {"q": "4"}, {"q": True}, {"q": 2.5}]),
        ("alpha_pattern", [{}, {"q_proj": 4}, {"q": 0.5}], [3, "x", ["x"], {"(": 3}, {"q": -1}, {"q": "4"}]),
    ],
)
def test_options_are_as_peft_reads_them(option: str, good: list[Any], bad: list[Any]) -> None:
    for value in [None, *good]:
        assert not list(pattern_problems({option: value}))
    for value in bad:
        assert [one.path for one in pattern_problems({option: value})] == [f"adapter.options.{option}"]


def test_an_adapters_options_are_looked_at() -> None:
    adapter = {"kind": "lora", "r": 4, "targets": ["q_proj"], "options": {"rank_pattern": {"q_proj": -1}}}
    with pytest.raises(InputError, match="rank_pattern"):
        check(plan_of(task="sft", adapter=adapter))
