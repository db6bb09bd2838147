"""The rule of thumb for a plan: its copies, its activations' row, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.quick import OVERHEAD
from trainledger.answer.states import bytes_per_parameter
from trainledger.answer.thumb import ALONE, recipe_of, thumb
from trainledger.base.problems import InputError


@pytest.mark.parametrize(
    ("sections", "each"),
    [
        ({}, 8),
        ({"precision": {"master": "fp32"}}, 16),
        ({"precision": {"master": "fp32", "gradients": "fp32"}}, 18),
        ({"precision": {"weights": "fp32", "gradients": "fp32", "autocast": True}}, 16),
        ({"precision": {"weights": "fp16", "main_gradients": "fp32", "master": "fp32"}}, 20),
        ({"optimizer": {"name": "sgd", "implementation": None}}, 4),
        ({"optimizer": {"name": "adamw-8bit", "implementation": None}}, 6),
        ({"optimizer": {"name": "adafactor", "implementation": None}}, 4),
        ({"optimizer": {"states": {"first": "fp32", "second": "fp32"}}}, 12),
        ({"trainable": "none"}, 2),
    ],
)
def test_bytes_per_parameter(sections: dict[str, Any], each: int) -> None:
    assert bytes_per_parameter(recipe_of(plan_of(**sections))) == each


@pytest.mark.parametrize(
    ("sections", "row"),
    [
        ({}, "selective"),
        ({"stack": {"attention": "eager"}}, "none"),
        ({"stack": {"recompute": "full"}}, "full"),
        ({"parallel": {"tp": 2}}, "tensor-selective"),
        ({"parallel": {"tp": 2, "sp": True}, "stack": {"attention": "eager"}}, "tensor-sequence"),
    ],
)
def test_the_row_of_activations(sections: dict[str, Any], row: str) -> None:
    assert thumb(plan_of(**sections)).given.activations == row


def test_heads_of_a_layer_that_cannot_be_walked_yet() -> None:
    assert thumb(plan_of("deepseek-v3")).given.heads == 128


def test_states_are_split_as_the_strategy_says() -> None:
    whole = thumb(plan_of()).answer.states
    assert thumb(plan_of(parallel={"strategy": "fsdp2", "world": 4})).answer.states == whole // 4
    assert thumb(plan_of(parallel={"strategy": "ddp", "world": 4})).answer.states == whole


def test_the_interval_is_the_rule_s() -> None:
    found = thumb(plan_of())
    rest = found.answer.states + found.answer.activations
    assert found.answer.low == -(-rest * (100 + OVERHEAD.low_percent) // 100)
    assert found.given.layers == LLAMA["num_hidden_layers"]
    assert found.to_dict()["label"] == "rule of thumb"


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"parallel": {"pp": 3}}, "parallel.pp"),
        ({"trainable": ["lm_head"]}, "trainable"),
        ({"adapter": {"kind": "lora", "r": 8, "targets": "all-linear"}}, "adapter"),
    ],
)
def test_what_it_has_no_rule_for(sections: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        thumb(plan_of(**sections))
    assert path in [problem.path for problem in caught.value.problems]


def test_other_places_are_named_as_what_it_leaves_out() -> None:
    assert ALONE in thumb(plan_of(save={"disk": "1GB"})).verdict.reasons
    assert ALONE not in thumb(plan_of()).verdict.reasons
