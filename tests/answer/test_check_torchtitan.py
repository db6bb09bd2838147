"""What of torchtitan's plans is refused, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

QWEN = {
    "model_type": "qwen3", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4, "head_dim": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024,
}  # fmt: skip
PARTS = "stack.options.compile.components"
OP = {"kind": "selective", "policy": "op"}


def checked(fp8: dict[str, Any] | None = None, compute: str = "fp8", strategy: str = "fsdp2", **stack: Any) -> None:
    given = {"framework": "torchtitan", "versions": {}, "loss": "full-fp32", **stack}
    precision = {"weights": "fp32", "gradients": "fp32", "compute": compute, "fp8": fp8}
    check(plan_of(stack=given, precision=precision, parallel={"strategy": strategy, "world": 4, "dp": 4}))


@pytest.mark.parametrize("recompute", ["none", "full", OP, {"kind": "selective", "policy": "every 2nd layer"}])
@pytest.mark.parametrize("compute", ["bf16", "fp8", "mxfp8"])
def test_what_torchtitan_has_is_allowed(recompute: Any, compute: str) -> None:
    checked(compute=compute, recompute=recompute, compile=True)


@pytest.mark.parametrize(
    "path, sections",
    [
        ("precision.fp8.recipe", {"fp8": {"recipe": "rowwize"}}),
        ("precision.fp8.kernels", {"fp8": {"kernels": "other"}}),
        ("precision.fp8.modules", {"fp8": {"modules": ["attention"]}}),
        ("precision.fp8.all_gather", {"fp8": {"all_gather": True}, "strategy": "fsdp1"}),
        ("precision.fp8", {"fp8": {"recipe": "rowwise"}, "compute": "bf16"}),
        ("stack.recompute.policy", {"recompute": {"kind": "selective", "policy": "other"}}),
        ("stack.recompute.modules", {"recompute": {"kind": "selective", "modules": ["mlp"]}}),
        ("stack.recompute.reentrant", {"recompute": {"kind": "full", "reentrant": True}}),
        ("stack.loss", {"loss": "fused-linear"}),
        (PARTS, {"options": {"compile": {"components": ["los"]}}}),
        (PARTS, {"options": {"compile": {"components": ["model"]}}}),
        (PARTS, {"options": {"compile": {"components": ["loss"]}}, "compile": True}),
        (PARTS, {"options": {"compile": {"components": ["loss"]}}, "framework": "torch"}),
    ],
)
def test_what_it_has_not_is_refused_by_name(path: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        checked(**sections)
    assert path in {one.path for one in caught.value.problems}


def test_weights_of_two_stages_are_not_tied() -> None:
    tied = {**QWEN, "tie_word_embeddings": True}
    parallel = {"strategy": "fsdp2", "world": 2, "pp": 2}
    with pytest.raises(InputError) as found:
        estimate(plan_of(tied, stack={"framework": "torchtitan"}, parallel=parallel, batch={"accumulation": 4}))
    assert [one.path for one in found.value.problems] == ["model.tie_word_embeddings"]


def test_the_policy_and_8_bits_are_torchtitans_alone() -> None:
    with pytest.raises(InputError) as caught:
        check(plan_of(stack={"recompute": OP}, precision={"compute": "fp8"}))
    assert {"stack.recompute", "precision.compute"} <= {one.path for one in caught.value.problems}


def test_degrees_that_cannot_be_are_refused_together() -> None:
    parallel = {"strategy": "fsdp2", "tp": 3, "sp": True, "dp": 2, "world": 6}
    plan = plan_of(QWEN, stack={"framework": "torchtitan", "versions": {}, "loss": "full-fp32"}, parallel=parallel)
    with pytest.raises(InputError) as found:
        check(plan)
    assert [one.path for one in found.value.problems] == ["parallel.tp", "parallel.tp", "batch.sequence"]
    assert all("The nearest that can is" in one.fix for one in found.value.problems)
