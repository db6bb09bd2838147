"""What must hold of the ledger of any plan."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.ledger.rank import payload
from trainledger.lines.line import Account
from trainledger.lines.stream import total

GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 512}
WIDE = {**LLAMA, "hidden_size": 1152, "intermediate_size": 6912, "vocab_size": 20011}  # blocks with unsplit ends
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True}
RECOMPUTE = ("none", {"kind": "full", "reentrant": False}, {"kind": "full", "reentrant": True})
PRECISIONS: tuple[dict[str, Any], ...] = (
    {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"},
    {"weights": "fp32", "compute": "fp32", "autocast": False, "gradients": "fp32"},
    {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"},
    {"weights": "fp32", "compute": "fp16", "autocast": True, "gradients": "fp32", "grad_scaler": True},
    {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16", "master": "fp32"},
)

plans = st.fixed_dictionaries(
    {
        "model": st.sampled_from([LLAMA, GPT2, QWEN3, WIDE]),
        "precision": st.sampled_from(PRECISIONS),
        "optimizer": st.fixed_dictionaries(
            {
                "name": st.sampled_from(
                    ["adamw", "sgd", "sgd-momentum", "adafactor", "lion", "adamw-8bit", "paged-adamw-8bit"]
                ),
                "implementation": st.sampled_from(["foreach", "loop", "fused"]),
                "grad_clip": st.sampled_from([None, 1.0]),
                "in_backward": st.booleans(),
            }
        ),
        "batch": st.fixed_dictionaries(
            {
                "micro_batch": st.integers(1, 4),
                "sequence": st.integers(1, 300),
                "accumulation": st.integers(1, 3),
            }
        ),
        "stack": st.fixed_dictionaries(
            {
                "attention": st.sampled_from(["sdpa", "eager"]),
                "recompute": st.sampled_from(RECOMPUTE),
                "loss": st.sampled_from(["full-fp32", "full"]),
                "options": st.sampled_from([{}, {"zero_grad_set_to_none": False}]),
            }
        ),
        "trainable": st.sampled_from(["all", ["lm_head"], ["mlp"], ["*.1.*"], ["0", "lm_head"], "none"]),
    }
)


def made(**sections: Any) -> Estimate:
    return estimate(plan_of(**sections))


@settings(max_examples=60, deadline=None)
@given(plans)
def test_live_lines_add_up_at_every_moment_and_nothing_is_negative(sections: dict[str, Any]) -> None:
    found = made(**sections)
    for moment in found.ledger.moments:
        assert total(found.ledger.lines, moment.live) == moment.allocated
        assert all(copies > 0 for _, copies in moment.live)
    assert found.peak.allocated.low <= found.peak.allocated.expected <= found.peak.allocated.high
    assert found.steps.allocated.expected <= found.peak.allocated.expected


@settings(max_examples=25, deadline=None)
@given(plans)
def test_the_second_step_ends_where_the_first_ended(sections: dict[str, Any]) -> None:
    """Nothing leaks: from step 2 on, clip and optimizer hold what they held in step 1 (states were born there)."""
    found = made(**sections)
    moments = {moment.name: moment for moment in found.ledger.moments}
    lines = found.ledger.lines
    for name in ("clip", "optimizer"):
        first, second = moments.get(f"step 1: {name}"), moments.get(f"step 2: {name}")
        if first and second and name == "optimizer":
            small = {Account.LOGITS, Account.INPUTS}
            kept = [{(line, n) for line, n in one.live if lines[line].account not in small} for one in (first, second)]
            assert kept[0] == kept[1]


def saved(found: Estimate) -> int:
    """Payload of the layers' saved activations that grow with the batch, at the loss of step 2."""
    moment = next(one for one in found.ledger.moments if one.name == "step 2: loss")
    return sum(
        payload(found.ledger.lines[line]) * copies
        for line, copies in moment.live
        if found.ledger.lines[line].account is Account.ACTIVATIONS
        and ".*." in found.ledger.lines[line].name
        and any(axis.dim.value == "batch" for axis in found.ledger.lines[line].dims)
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 5), st.sampled_from([LLAMA, QWEN3]), st.sampled_from(PRECISIONS[:3]))
def test_saved_activations_are_linear_in_the_micro_batch(size: int, model: dict[str, Any], precision: Any) -> None:
    one = saved(made(model=model, precision=precision, batch={"micro_batch": 1, "sequence": 256}))
    many = saved(made(model=model, precision=precision, batch={"micro_batch": size, "sequence": 256}))
    assert many == size * one > 0


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 4), st.integers(64, 512), st.sampled_from([LLAMA, GPT2, QWEN3]))
def test_recompute_never_saves_more(micro_batch: int, sequence: int, model: dict[str, Any]) -> None:
    sizes = [
        saved(made(model=model, batch={"micro_batch": micro_batch, "sequence": sequence}, stack={"recompute": kind}))
        for kind in (RECOMPUTE[1], "none")
    ]
    assert sizes[0] <= sizes[1]
    assert sizes[0] < sizes[1] or sequence == 0


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([LLAMA, GPT2, QWEN3]), st.integers(1, 3))
def test_more_tokens_never_take_less(model: dict[str, Any], micro_batch: int) -> None:
    small, large = (
        made(model=model, batch={"micro_batch": micro_batch, "sequence": sequence}).peak.allocated.low
        for sequence in (128, 384)
    )
    assert small <= large
