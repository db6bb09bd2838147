"""The order in which Megatron-Core's own layers make and let go of tensors, as runs of its code on PyTorch's allocator
have it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import GPT, LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.ledger.rank import Ledger

PLAIN = {"hidden_dropout": 0.0, "attention_dropout": 0.0}


def made(model: dict[str, Any], **parts: dict[str, Any]) -> Ledger:
    return estimate(plan_of(model, **{"parallel": {"strategy": "megatron-distopt", "dp": 2}, **parts})).ledger


def told(ledger: Ledger, moment: str) -> list[tuple[bool, str]]:
    """Births (True) and deaths of a moment, by the lines' names."""
    return [
        (event > 0, ledger.lines[abs(event) - 1].name)
        for one in ledger.segments
        if one.moment == moment
        for _ in range(one.repeat)
        for event in one.events
    ]


def first(events: list[tuple[bool, str]], birth: bool, part: str) -> int:
    return next(at for at, (born, name) in enumerate(events) if born == birth and part in name)


def test_rotary_angles_are_made_after_the_embedding() -> None:
    forward = told(made(LLAMA), "step 1: forward")
    assert first(forward, True, "rotary angles") > first(forward, True, "embedding")


def test_words_and_positions_stay_until_the_embedding_returns() -> None:
    forward = told(made({**GPT, **PLAIN}), "step 1: forward")
    sums = first(forward, True, "with positions")
    born = [at for at, event in enumerate(forward) if event[0] and at > sums]
    assert first(forward, False, "embedding: output") > born[0]  # the copy with the sequence first


@pytest.mark.parametrize(("release", "stays"), [("0.19.2", True), ("0.14.0", False)])
def test_queries_are_named_until_attention_returns(release: str, stays: bool) -> None:
    stack = {"versions": {"torch": "2.13.0", "megatron-core": release}}
    forward = told(made(LLAMA, stack=stack), "step 1: forward")
    gone, projected = first(forward, False, "self_attention: copy"), first(forward, True, "linear_proj: output")
    assert (gone > projected) == stays


@pytest.mark.parametrize("sp", [False, True])
def test_the_first_product_of_backward_makes_its_result_before_the_workspace(sp: bool) -> None:
    parallel = {"strategy": "megatron-distopt", "dp": 2, "tp": 2, "sp": sp}
    backward = told(made(LLAMA, parallel=parallel, stack={"attention": "sdpa"}), "step 1: backward")
    at = first(backward, True, "cuBLAS workspace")
    wanted = "whole gradient of the input" if sp else "gradient of decoder.final_layernorm: output"
    assert wanted in backward[at - 1][1]


def test_the_buffer_that_layers_gather_into_is_made_by_the_first_of_them() -> None:
    parallel = {"strategy": "megatron-distopt", "dp": 2, "tp": 2, "sp": True}
    forward = told(made(LLAMA, parallel=parallel, stack={"attention": "sdpa"}), "step 1: forward")
    at = first(forward, True, "buffer that layers share")
    assert "linear_qkv: output" in forward[at + 1][1]


def test_a_bias_of_its_own_is_summed_over_tokens_in_partial_sums() -> None:
    backward = told(made({**GPT, **PLAIN}, device={"name": "h100-80gb"}), "step 1: backward")
    assert any("partial sums of blocks" in name and "mlp" in name for _, name in backward)


def test_a_bias_that_the_product_adds_has_its_gradient_after_the_weight_s() -> None:
    """A sum over tokens: its partial sums are there beside the gradients of both."""
    backward = told(made({**GPT, **PLAIN}, device={"name": "h100-80gb"}), "step 1: backward")
    weight, bias = (first(backward, True, f"gradient of self_attention.linear_qkv.{one}") for one in ("weight", "bias"))
    sums = first(backward, True, "linear_qkv: partial sums of blocks")
    gone = first(backward, False, "gradient of self_attention.linear_qkv.weight")
    assert weight < bias < sums < gone


@pytest.mark.parametrize(("strategy", "wanted"), [("megatron-distopt", "output_layer"), ("megatron-ddp", "embedding")])
def test_states_appear_layer_by_layer(strategy: str, wanted: str) -> None:
    """In the order of the buffer, that of backward, or in that of the model."""
    step = told(made(LLAMA, parallel={"strategy": strategy, "dp": 2}), "step 1: optimizer")
    names = [name for born, name in step if born and name.startswith("first_moment")]
    assert wanted in names[0]
    layers = [name for name in names if "mlp.linear_fc1.weight" in name]
    assert names.index(layers[0]) + len(layers) < len(names) - names[::-1].index(layers[0])  # not one after the other
