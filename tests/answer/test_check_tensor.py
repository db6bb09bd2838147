"""What of PyTorch's tensor parallelism is refused, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError


def problems(model: dict[str, Any] = LLAMA, **sections: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(model, **sections))
    return [f"{one.path}: {one.found}" for one in caught.value.problems]


@pytest.mark.parametrize(
    ("sections", "found"),
    [
        ({"stack": {"loss": "vocab-parallel"}}, "stack.loss: found 'vocab-parallel' with tp 1"),
        ({"parallel": {"sp": True}}, "parallel.sp: found true with tp 1"),
        ({"parallel": {"tp": 2, "strategy": "ddp", "dp": 2}}, "parallel.tp: found 2 with ddp"),
        ({"parallel": {"tp": 2}, "stack": {"kernels": ["liger"]}}, "parallel.tp: found 2 with kernels"),
        ({"parallel": {"tp": 2, "sp": True}, "batch": {"sequence": 511}}, "batch.sequence: found 511"),
        (
            {"parallel": {"tp": 2, "sp": True}, "stack": {"framework": "colossalai"}, "precision": {"master": "fp32"}},
            "parallel.sp: found true with colossalai",
        ),
        (
            {"parallel": {"tp": 2}, "stack": {"framework": "colossalai", "loss": "vocab-parallel"}},
            "stack.loss: found 'vocab-parallel' with colossalai",
        ),
    ],
)
def test_what_is_not_known_is_named(sections: dict[str, Any], found: str) -> None:
    assert problems(**sections) == [found]


def test_every_size_that_does_not_divide_is_named() -> None:
    assert "parallel.tp: found 4" in problems(parallel={"tp": 4})


def test_a_tied_head_is_refused() -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    assert problems(tied, parallel={"tp": 2}) == ["parallel.tp: found 2 with a tied head"]
