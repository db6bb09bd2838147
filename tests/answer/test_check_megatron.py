"""What plans are refused for under Megatron-Core whatever their model, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import LLAMA, LOCAL, plan_of
from trainledger.answer.check import check
from trainledger.base.problems import InputError

TE = {"kernels": ["te"], "options": {}}


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("stack.attention", {"parallel": {"cp": 2}, "stack": {**TE, "attention": "unfused"}}),
        (
            "stack.options.distribute_saved_activations",
            {
                "parallel": {"tp": 2, "sp": True},
                "stack": {"recompute": "full", "options": {**LOCAL, "distribute_saved_activations": True}},
            },
        ),
    ],
)
def test_refused_by_name(key: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        check(plan_of(LLAMA, **sections))
    assert [one.path for one in found.value.problems] == [key]


@pytest.mark.parametrize("word", ["fused", "flash"])
def test_kernels_take_a_part_of_the_sequence(word: str) -> None:
    check(plan_of(LLAMA, parallel={"cp": 2}, stack={**TE, "attention": word}))
