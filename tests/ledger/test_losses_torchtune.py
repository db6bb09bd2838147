"""torchtune's losses: what lives of the logits at the loss, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.bands import largest
from trainledger.answer.estimate import estimate

TOKENS = 512
MODEL = {**LLAMA, "vocab_size": 64_000, "num_hidden_layers": 1}
WHOLE = TOKENS * MODEL["vocab_size"]


def run(micro_batch: int = 1, **stack: Any) -> Callable[[str], int]:
    """What lives at most in each moment of a run."""
    stack = {"framework": "torchtune", "versions": {}, "recompute": "none", **stack}
    batch = {"micro_batch": micro_batch, "sequence": TOKENS // micro_batch}
    found = estimate(plan_of(MODEL, batch=batch, stack=stack))
    return lambda name: max(one.allocated for one in found.ledger.moments if one.name == name)


def at_the_loss(**stack: Any) -> int:
    """Bytes that the loss adds to a forward of a tied or untied head's hidden states."""
    most = run(**stack)
    return most("step 1: loss") - most("step 1: forward")


@pytest.mark.parametrize(
    ("loss", "compiled", "each"),
    [
        ("full-fp32", False, 8),  # cast logits while their log-probabilities are made
        ("full-fp32", True, 8),  # the recipe does not run the loss that it compiled
        ("chunked", False, 6 + 4 / 8),  # bf16 logits, fp32 log-probabilities, one chunk's cast
        ("chunked", True, 2),  # bf16 logits alone
    ],
)
def test_bytes_of_each_token_and_word(loss: str, compiled: bool, each: float) -> None:
    assert at_the_loss(loss=loss, compile=compiled) == pytest.approx(each * WHOLE, rel=0.06)


def test_the_recipe_of_lora_on_one_device_runs_the_loss_that_it_compiles() -> None:
    stack = {"framework": "torchtune", "versions": {}, "recompute": "none", "loss": "full-fp32", "compile": True}
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}
    found = estimate(plan_of(MODEL, batch={"micro_batch": 1, "sequence": TOKENS}, stack=stack, adapter=adapter))
    loss, forward = (
        max(one.allocated for one in found.ledger.moments if one.name == f"step 1: {name}")
        for name in ("loss", "forward")
    )
    assert loss - forward == pytest.approx(6 * WHOLE, rel=0.06)  # bf16 logits while they are cast


@pytest.mark.parametrize(
    ("version", "each"),
    [
        ("0.1.1", 12),  # cast logits, their words turned, and log-probabilities
        ("2024-08-01", 12),
        ("0.3.0", 8),
        ("2024-09-01", 8),
        ("", 8),
    ],
)
def test_older_recipes_copy_the_logits_for_the_loss(version: str, each: int) -> None:
    versions = {"torchtune": version} if version else {}
    assert at_the_loss(loss="full-fp32", compile=False, versions=versions) == pytest.approx(each * WHOLE, rel=0.06)


@pytest.mark.parametrize(("micro_batch", "moment"), [(1, "step 1"), (2, "step 2")])
def test_the_oldest_recipes_hold_the_logits_through_backward(micro_batch: int, moment: str) -> None:
    kept, dropped = (
        run(micro_batch, loss="full-fp32", compile=False, versions={"torchtune": version})
        for version in ("2024-07-01", "2024-08-01")
    )
    name = f"{moment}: backward of the loss"
    assert kept(name) - dropped(name) == pytest.approx(4 * WHOLE, rel=0.01)


def test_a_whole_model_by_a_paged_optimizer_in_backward() -> None:
    """Llama-2-7B in bf16, 4 sequences of 2,048: 20.2 GB allocated (torchtune's pull request 961, 2024-05)."""
    model = {
        "model_type": "llama",
        "vocab_size": 32_000,
        "hidden_size": 4_096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "tie_word_embeddings": False,
    }
    stack = {"framework": "torchtune", "versions": {"torchtune": "2024-05-10"}, "recompute": {"kind": "full"}}
    plan = plan_of(
        model,
        batch={"micro_batch": 4, "sequence": 2_048},
        precision={"weights": "bf16", "compute": "bf16", "gradients": "bf16", "autocast": False},
        optimizer={"name": "paged-adamw-32bit", "in_backward": True},
        stack={**stack, "loss": "full-fp32"},
    )
    assert largest(estimate(plan).ledger.moments).allocated == pytest.approx(20.2e9, rel=0.02)
