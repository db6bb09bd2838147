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


FALCON: dict[str, Any] = {
    "model_type": "falcon", "vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
BLOOM: dict[str, Any] = {"model_type": "bloom", "vocab_size": 256, "hidden_size": 64, "n_layer": 2, "n_head": 4}


@pytest.mark.parametrize(
    ("model", "word", "reason"),
    [
        (BLOOM, "sdpa", "calls no kernel"),
        ({"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 2}, "flash", "calls no kernel"),
        (FALCON, "flex", "no code for flex"),
        ({**FALCON, "alibi": True}, "flash", "no biases by distance"),
    ],
)
def test_classes_that_write_attention_out_refuse_what_they_do_not_call(
    model: dict[str, Any], word: str, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        estimate(plan_of(model, stack=stack(word)))


def test_their_layers_are_covered_since_they_return_weights() -> None:
    estimate(plan_of(BLOOM, stack=stack("eager", "4.54.1")))
    with pytest.raises(InputError, match=r"Transformers 4\.54 on"):
        estimate(plan_of(BLOOM, stack=stack("eager", "4.53.3")))


def test_a_class_without_kernels_writes_attention_out_by_default() -> None:
    plan = plan_of(BLOOM, stack={"attention": None})
    assert plan.stack.attention == "eager"
