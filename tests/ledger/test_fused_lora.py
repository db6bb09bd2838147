"""Quantised, adapted projections in one function: what it saves, what its backward makes, and where it applies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.lines.line import Account

HIDDEN, TOKENS = 256, 2 * 512
ALL = ["q_proj", "k_proj", "v_proj", "o_proj"]


def made(kernels: list[str], targets: list[str] = ALL, kind: str = "nf4", **stack: Any) -> Estimate:
    return estimate(
        plan_of(
            model={
                "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 512, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
            },
            adapter={"kind": "lora", "r": 8, "targets": targets, "dtype": "fp32", "dropout": 0.1},
            quantization={"kind": kind, "double": True} if kind == "nf4" else {"kind": kind, "group_size": 128},
            precision={"weights": "bf16", "compute": "bf16", "autocast": True, "gradients": "fp32"},
            batch={"micro_batch": 2, "sequence": 512, "accumulation": 1},
            stack={
                "framework": "transformers", "attention": "flash", "loss": "full-fp32", "kernels": kernels,
                "versions": {"torch": "2.4.1", "transformers": "4.48.1", "peft": "0.13.2", "bitsandbytes": "0.43.3"},
                **stack,
            },
            device={"name": "a100-80gb"},
        )
    )  # fmt: skip


def names(found: Estimate, account: Account, part: str) -> set[str]:
    return {line.name for line in found.ledger.lines if line.account is account and part in line.name}


def kept(found: Estimate) -> int:
    """Bytes of both layers' activations in the scopes of attention's projections."""
    lines = found.ledger.lines
    live = next(one.live for one in found.ledger.moments if one.name == "step 2: loss")
    return sum(
        lines[at].unit * copies
        for at, copies in live
        if lines[at].account is Account.ACTIVATIONS and "_proj" in lines[at].name and "mlp" not in lines[at].name
    )


def test_no_mask_and_no_narrow_product_is_saved() -> None:
    plain, fused = made(["liger"]), made(["foak"])
    assert names(plain, Account.ACTIVATIONS, "dropout mask")
    assert not names(fused, Account.ACTIVATIONS, "dropout mask")
    # nothing below the first layer's projections needs a gradient, so that only its output projection has a mask
    masks, narrow = len(ALL) + 1, 2 * len(ALL)
    assert kept(plain) - kept(fused) == TOKENS * (masks * HIDDEN + narrow * 2 * 8)


def test_the_input_is_saved_too() -> None:
    assert names(made(["foak"]), Account.ACTIVATIONS, "input_layernorm: output")
    assert not names(made(["liger"]), Account.ACTIVATIONS, "input_layernorm: output")


def test_autocast_caches_no_adapter() -> None:
    assert names(made(["liger"]), Account.CASTS, "lora")
    assert not names(made(["foak"]), Account.CASTS, "lora")


@pytest.mark.parametrize(("kind", "over"), [("nf4", True), ("gptq4", False)])
def test_bitsandbytes_writes_the_gradient_over_the_input(kind: str, over: bool) -> None:
    found = made(["foak"], kind=kind, recompute={"kind": "full", "reentrant": True})
    held = names(found, Account.BACKWARD, "gradient of input_layernorm: output")
    assert len(held) == 1
    both = _together(found, "input_layernorm: output", "gradient of input_layernorm: output")
    assert both is not over


def _together(found: Estimate, first: str, second: str) -> bool:
    """Whether a storage of each name is ever alive in step 2's backward at once."""
    alive = {first: 0, second: 0}
    for segment in found.ledger.segments:
        for event in segment.events:
            name = found.ledger.lines[abs(event) - 1 if event > 0 else -event - 1].name.removeprefix("model.layers.*.")
            if name in alive:
                alive[name] += 1 if event > 0 else -1
            if segment.moment.startswith("step 2: backward of layer 1") and all(alive.values()):
                return True
    return False


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["q_proj", "k_proj"], ["gate_proj"]])
def test_all_of_a_group_must_be_adapted(targets: list[str]) -> None:
    plain, partial = made(["liger"], targets), made(["foak"], targets)
    assert names(plain, Account.ACTIVATIONS, "dropout mask") == names(partial, Account.ACTIVATIONS, "dropout mask")


def test_plain_bases_are_left_alone() -> None:
    given = plan_of(
        adapter={"kind": "lora", "r": 8, "targets": ALL, "dtype": "fp32", "dropout": 0.1},
        stack={"kernels": ["foak"], "versions": {"torch": "2.4.1", "transformers": "4.48.1", "peft": "0.13.2"}},
    )
    found = estimate(given)
    assert names(found, Account.ACTIVATIONS, "dropout mask")


def test_logits_that_the_caller_names_outlive_a_loss_that_saves_them() -> None:
    given = plan_of(
        precision={"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32"},
        stack={"kernels": ["foak"], "options": {"keep_outputs": True}},
    )
    alive = 0
    for segment in (found := estimate(given)).ledger.segments:
        for event in segment.events * segment.repeat:
            if found.ledger.lines[abs(event) - 1].name == "logits":
                alive += 1 if event > 0 else -1
                assert alive >= 0
        if segment.moment == "step 2: backward of the embedding":
            assert alive == 1
    assert alive == 1
