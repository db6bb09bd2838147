"""What plans that name verl or OpenRLHF leave out is filled in as a run's own file has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.plan.schema import Plan

PPO: dict[str, Any] = {
    "model": LLAMA, "task": "ppo", "batch": {"micro_batch": 1, "sequence": 512}, "parallel": {"world": 8},
    "roles": {"policy": {}, "critic": {"model": LLAMA}}, "device": "h100-80gb",
}  # fmt: skip


def filled(framework: str, **more: Any) -> Plan:
    return draft_of(Document({**PPO, "stack": {"framework": framework, "recompute": "full"}, **more}, {})).plan


def test_verls_workers() -> None:
    plan = filled("verl")
    assert (plan.parallel.strategy, plan.stack.loss, plan.stack.attention) == ("fsdp1", "full", "flash")
    assert (plan.precision.weights, plan.precision.compute, plan.precision.reduce) == ("fp32", "bf16", "fp32")
    assert (plan.optimizer.grad_clip, plan.stack.recompute.reentrant) == (1.0, False)
    assert filled("verl", task="sft", roles={}).stack.loss == "full-fp32"  # a loss of the script's own


def test_verls_other_engine_has_defaults_of_its_own() -> None:
    plan = filled("verl", parallel={"world": 8, "strategy": "megatron-ddp"}, precision={"weights": "bf16"})
    assert (plan.precision.master, plan.precision.reduce) == ("fp32", "bf16")
    assert plan.stack.loss != "full"


def test_openrlhfs_trainers() -> None:
    plan = filled("openrlhf")
    assert (plan.parallel.strategy, plan.stack.loss, plan.optimizer.grad_clip) == ("zero2", "full", 1.0)
    assert (plan.stack.attention, plan.precision.master) == ("flash", "fp32")
    assert plan.optimizer.implementation == "apex-fused"
    assert filled("openrlhf", offload={"optimizer": "cpu"}).optimizer.implementation == "cpu"
    assert filled("verl").optimizer.implementation == "foreach"


@pytest.mark.parametrize("framework", ["verl", "openrlhf"])
def test_what_is_said_stays(framework: str) -> None:
    stack = {"framework": framework, "loss": "full-fp32", "attention": "sdpa"}
    plan = filled(framework, stack=stack, optimizer={"grad_clip": None}, precision={"weights": "bf16"})
    assert (plan.stack.loss, plan.stack.attention, plan.optimizer.grad_clip) == ("full-fp32", "sdpa", None)
    assert plan.precision.weights == "bf16"
