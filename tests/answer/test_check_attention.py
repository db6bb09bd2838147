"""Attention with sinks runs written out in Python; other words are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2,
}  # fmt: skip


def stack(word: str, release: str = "5.24.0") -> dict[str, Any]:
    return {"attention": word, "versions": {"torch": "2.13.0", "transformers": release}}


@pytest.mark.parametrize("word", ["sdpa", "flash", "flex", "mem-efficient"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(OSS, stack=stack(word)))
    (problem,) = caught.value.problems
    assert problem.path == "stack.attention"


GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size_per_layer_input": 0,
}  # fmt: skip


def test_the_package_takes_no_wide_heads() -> None:
    with pytest.raises(InputError, match="heads of at most 256"):
        estimate(plan_of(GEMMA4, stack=stack("flash")))
    assert estimate(plan_of({**GEMMA4, "global_head_dim": 256}, stack=stack("flash"))).ledger.moments
    assert estimate(plan_of(GEMMA4, stack=stack("sdpa"))).ledger.moments


def test_eager_is_estimated() -> None:
    assert estimate(plan_of(OSS, stack=stack("eager"))).ledger.moments


def test_older_layers_are_refused() -> None:
    with pytest.raises(InputError, match="from Transformers"):
        estimate(plan_of(OSS, stack=stack("eager", "4.57.1")))
