"""Chunks of logits that all stay: what they hold at the loss, and when the caller's name lets go of them."""

from __future__ import annotations

from typing import Any

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate

TOKENS = 512
MODEL = {**LLAMA, "vocab_size": 64_000, "num_hidden_layers": 1}


def found(micro_batch: int = 1, accumulation: int = 2, **stack: Any) -> Estimate:
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj", "v_proj"], "dtype": "bf16"}
    batch = {"micro_batch": micro_batch, "sequence": TOKENS, "accumulation": accumulation}
    stack = {"framework": "litgpt", "loss": "chunked", "versions": {}, **stack}
    return estimate(plan_of(MODEL, adapter=adapter, batch=batch, stack=stack))


def most(answer: Estimate, moment: str) -> int:
    return max(one.allocated for one in answer.ledger.moments if one.name.startswith(moment))


def test_logits_and_log_probabilities_of_all_chunks_live_in_fp32_at_the_loss() -> None:
    """Eight bytes for each token and word; the bf16 logits are gone, and a chunk's gradients come one by one."""
    answer = found(accumulation=1)
    whole = TOKENS * MODEL["vocab_size"]
    rest = most(answer, "step 1: forward")
    assert 8 * whole < most(answer, "step 1: loss") - rest < 9 * whole


def test_the_logits_before_are_let_go_as_the_new_ones_are_named() -> None:
    """While new chunks are made the old ones live in fp32; at the loss they are gone. The rest: a second workspace."""
    once, twice = (most(found(accumulation=n), "step 1: loss") for n in (1, 2))
    whole = TOKENS * MODEL["vocab_size"]
    assert 2 * whole < twice - once < 2.5 * whole


def test_only_the_first_batch_of_a_commit_is_as_long_as_said() -> None:
    """Scripts before the first release, which plans name by a commit, fed the longest sample first."""
    commit = found(versions={"litgpt": "8641822"})
    assert most(commit, "step 2: loss") < most(commit, "step 1: loss") / 2
    release = found(versions={"litgpt": "0.4.13"})
    assert most(release, "step 2: loss") >= most(release, "step 1: loss")
