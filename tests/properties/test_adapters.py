"""What must hold of the ledger of any plan with an adapter or a quantised base."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from tests.properties.test_ledger import GPT2, QWEN3
from trainledger.answer.estimate import Estimate, estimate
from trainledger.lines.line import Account

MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 384}
GEMMA = {**LLAMA, "model_type": "gemma", "head_dim": 64, "pad_token_id": 0, "tie_word_embeddings": True}
RESIDENT = (Account.WEIGHTS, Account.OPTIMIZER, Account.MASTER)
LOW_RANK = ("lora", "dora", "adalora", "loha", "lokr", "vera", "ia3", "boft", "fourierft")

adapters = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(LOW_RANK),
            "r": st.integers(1, 16),
            "targets": st.sampled_from(["all-linear", r".*\.(q_proj|c_attn|o_proj)", r".*\.0\..*(o_proj|c_proj)"]),
            "dtype": st.sampled_from(["fp32", "bf16"]),
            "dropout": st.sampled_from([0.0, 0.1]),
            "train_extra": st.sampled_from([[], ["lm_head"]]),
        }
    ),
    st.just({"kind": "prompt-tuning", "dtype": "fp32", "options": {"num_virtual_tokens": 8}}),
    st.fixed_dictionaries(
        {
            "kind": st.just("prefix-tuning"),
            "dtype": st.just("fp32"),
            "options": st.fixed_dictionaries(
                {
                    "num_virtual_tokens": st.just(8),
                    "prefix_projection": st.booleans(),
                    "encoder_hidden_size": st.just(16),
                }
            ),
        }
    ),
    st.just({"kind": "trainable-tokens", "dtype": "fp32", "options": {"token_indices": [1, 2]}}),
)
plans = st.fixed_dictionaries(
    {
        "model": st.sampled_from([LLAMA, GPT2, QWEN3, MIXTRAL, GEMMA]),
        "adapter": adapters,
        "quantization": st.sampled_from([None, None, "nf4", "fp4", "int8", "gptq4", "awq4", "fp8"]),
        "precision": st.sampled_from(
            [
                {"weights": "bf16", "compute": "bf16", "autocast": False},
                {"weights": "bf16", "compute": "bf16", "autocast": True, "norms": "fp32"},
                {"weights": "fp32", "compute": "bf16", "autocast": True},
            ]
        ),
        "batch": st.fixed_dictionaries(
            {"micro_batch": st.integers(1, 3), "sequence": st.integers(8, 200), "accumulation": st.integers(1, 2)}
        ),
        "recompute": st.sampled_from(
            ["none", {"kind": "full", "reentrant": False}, {"kind": "full", "reentrant": True}]
        ),
        "transformers": st.sampled_from(["4.48.1", "5.24.0"]),
        "strategy": st.sampled_from([{"strategy": "none"}, {"strategy": "ddp", "dp": 2}]),
    }
)


def answer(drawn: dict[str, Any]) -> Estimate:
    adapter, kind = drawn["adapter"], drawn["quantization"]
    assume(kind is None or adapter["kind"] == "lora" or (adapter["kind"] == "dora" and kind in ("nf4", "fp4")))
    assume(drawn["model"] is not MIXTRAL or drawn["transformers"] == "5.24.0" or adapter.get("targets") != "all-linear")
    if adapter["kind"] == "prefix-tuning":
        drawn = {**drawn, "recompute": "none", "transformers": "5.24.0", "peft": "0.21.2"}
    return estimate(
        plan_of(
            drawn["model"],
            adapter=adapter,
            quantization=None if kind is None else {"kind": kind},
            precision={**drawn["precision"], "gradients": adapter["dtype"]},
            batch=drawn["batch"],
            parallel=drawn["strategy"],
            stack={
                "versions": {
                    "torch": "2.4.1",
                    "transformers": drawn["transformers"],
                    "peft": drawn.get("peft", "0.15.2"),
                },
                "recompute": drawn["recompute"],
                "attention": "eager",
            },
        )
    )


def left(found: Estimate, account: Account) -> int:
    """Bytes of an account that live after the last step."""
    alive = 0
    for _, events, repeat, _ in found.ledger.segments:
        for event in events:
            line = found.ledger.lines[abs(event) - 1]
            alive += repeat * (line.unit if event > 0 else -line.unit) if line.account is account else 0
    return alive


@settings(max_examples=60, deadline=None)
@given(plans)
def test_a_step_leaves_nothing_but_states(drawn: dict[str, Any]) -> None:
    """Gradients, work and activations end with the step, but for what the loss's name keeps until the next forward."""
    found = answer(drawn)
    for account in (Account.GRADIENTS, Account.FORWARD, Account.RECOMPUTED, Account.CLIP, Account.STEP):
        assert left(found, account) == 0, account
    assert left(found, Account.WEIGHTS) > 0


@settings(max_examples=30, deadline=None)
@given(plans)
def test_an_adapter_trains_less_than_the_model_has(drawn: dict[str, Any]) -> None:
    found = answer(drawn)
    assert 0 < found.parameters.trainable < found.parameters.total
    for moment in found.ledger.moments:
        held = sum(found.ledger.lines[at].unit * copies for at, copies in moment.live)
        assert held == moment.allocated


@settings(max_examples=20, deadline=None)
@given(plans, st.integers(1, 4))
def test_more_tokens_never_cost_less(drawn: dict[str, Any], times: int) -> None:
    less = answer(drawn)
    more = answer({**drawn, "batch": {**drawn["batch"], "sequence": drawn["batch"]["sequence"] * times}})
    assert less.steps.allocated.expected <= more.steps.allocated.expected
