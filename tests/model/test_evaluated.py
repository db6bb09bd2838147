"""Models whose trainer turns dropout off: an adapter's, and what of the model's own stands in modules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.facts.dropout import turns_off
from trainledger.model.build import model_of, still
from trainledger.model.evaluated import evaluated
from trainledger.model.program import Attention, Dropout
from trainledger.plan.schema import Plan

VERSIONS = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.15.0", "trl": "1.16.0", "peft": "0.21.2"}
DROPS = {"phi": ("resid_pdrop", "attention_dropout"), "opt": ("dropout", "attention_dropout"),
         "falcon": ("hidden_dropout", "attention_dropout"), "gpt2": ("resid_pdrop", "attn_pdrop")}  # fmt: skip
PHI = {
    "model_type": "phi", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 512,
}  # fmt: skip


def given(task: str = "dpo", model: Any = LLAMA, dropout: float = 0.05, kind: str = "lora", **options: object) -> Plan:
    adapter = {"kind": kind, "r": 16, "targets": "all-linear", "dropout": dropout} if kind else None
    loss = {"dpo": "fused-linear", "grpo": "fused-linear"}.get(task, "full-fp32")
    stack = {"versions": VERSIONS, "loss": loss, "options": options}
    return plan_of(model, task=task, adapter=adapter, stack=stack, roles={"policy": {}} if task == "grpo" else None)


def backward(plan: Plan) -> int:
    return max(one.allocated for one in estimate(plan).ledger.moments if "backward" in one.name)


def test_an_adapter_drops_nothing_unless_its_trainer_is_told_to() -> None:
    assert backward(given()) == backward(given(dropout=0.0)) < backward(given(disable_dropout=False))
    assert backward(given("sft")) > backward(given("sft", dropout=0.0))
    assert backward(given("sft", disable_dropout=True)) == backward(given("sft", dropout=0.0))


def test_dora_goes_the_way_of_a_layer_with_dropout() -> None:
    """Which computes the layer's own product once more; evaluation does not."""
    still_there, without = given(kind="dora"), given(kind="dora", dropout=0.0)
    assert backward(without) < backward(still_there) < backward(given(kind="dora", disable_dropout=False))


@pytest.mark.parametrize(("family", "kept"), [("phi", (0, 1)), ("opt", (1, 1)), ("falcon", (1, 0)), ("gpt2", (0, 0))])
def test_what_a_function_drops_is_dropped_still(family: str, kept: tuple[int, int]) -> None:
    """Hidden states, and attention's weights."""
    keys = {**PHI, "model_type": family} | dict.fromkeys(DROPS[family], 0.1)
    ops = model_of(given(model=keys, kind="")).blocks[0].ops
    hidden = any(op.spec.p for op in ops if isinstance(op.spec, Dropout))
    scores = any(op.spec.dropout for op in ops if isinstance(op.spec, Attention))
    assert (hidden, scores) == kept


@pytest.mark.parametrize(
    ("task", "versions", "off"),
    [
        ("dpo", {"trl": "0.7.9"}, True),
        ("simpo", {"llamafactory": "0.9.3"}, True),
        ("kto", {"ms-swift": "4.6.0"}, True),
        ("reward", {"trl": "0.12.2"}, False),
        ("reward", {"trl": "0.14.0"}, True),
        ("grpo", {"trl": "1.16.0"}, False),
        ("sft", {"trl": "1.16.0"}, False),
        ("dpo", {"transformers": "5.24.0"}, False),
    ],
)
def test_trainers_that_turn_it_off(task: str, versions: dict[str, str], off: bool) -> None:
    assert turns_off(task, "transformers", versions) is off
    assert not turns_off(task, "colossalai", versions)


def test_grpo_does_where_it_is_told_to() -> None:
    assert not still(given("grpo"))
    assert still(given("grpo", disable_dropout=True))


def test_a_reference_whose_embedding_has_a_dropout() -> None:
    """Rows of which a frozen model drops nothing are its hidden states, and go once."""
    keys = {**PHI, "model_type": "starcoder2", "num_key_value_heads": 2, "embedding_dropout": 0.1}
    with_one, without = (given(model=keys | more, kind="") for more in ({}, {"embedding_dropout": 0.0}))
    assert estimate(with_one).parameters == estimate(without).parameters
    assert not any(getattr(op.spec, "p", 0) for op in evaluated(model_of(with_one)).prologue)
