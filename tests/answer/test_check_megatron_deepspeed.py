"""Megatron's layers under DeepSpeed: what is estimated, what is refused, and what those layers cannot run under."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.check import check, check_model
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.plan.acting import Role, Roles
from trainledger.plan.beyond import Save

GPT = {**LLAMA, "model_type": "megatron-gpt", "position_embedding_type": "rope", "normalization": "RMSNorm",
       "hidden_act": "silu", "gated_linear_unit": True, "add_bias_linear": False, "hidden_dropout": 0.0,
       "attention_dropout": 0.0}  # fmt: skip


def plan(framework: str = "megatron-deepspeed", **parallel: Any) -> Any:
    stack = {"framework": framework, "versions": {"torch": "2.2.1", "deepspeed": "0.14.0"}, "attention": "flash",
             "recompute": {"kind": "full", "method": "uniform", "num_layers": 1}, "loss": "vocab-parallel"}  # fmt: skip
    return plan_of(GPT, stack=stack, parallel={"strategy": "zero2", "dp": 4, "tp": 2, **parallel})


def problems(given: Any) -> dict[str, str]:
    try:
        check(given)
        check_model(given, model_of(given))
    except InputError as error:
        return {one.path: str(one) for one in error.problems}
    return {}


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_tensor_parallel_layers_under_zero(strategy: str) -> None:
    whole, spread = (estimate(plan(strategy=strategy, tp=tp)) for tp in (1, 2))
    assert spread.peak.allocated.expected < whole.peak.allocated.expected
    assert spread.ledger.moments


def test_roles_are_refused_as_elsewhere() -> None:
    given = plan().model_copy(update={"roles": Roles(reference=Role())})
    assert "roles" in problems(given)
    saved = plan().model_copy(update={"save": Save(format="adapter")})
    assert [path for path in problems(saved) if path.startswith("save")] == ["save.format"]


def test_what_is_not_written_yet() -> None:
    assert "parallel.strategy" in problems(plan(strategy="zero3"))
    assert "parallel.pp" in problems(plan(pp=3))


def test_no_other_framework_runs_megatron_s_own_model() -> None:
    found = problems(_plain())
    assert "megatron-gpt is a model of megatron" in found["stack.framework"]


def _plain() -> Any:
    stack = {"framework": "deepspeed", "versions": {"deepspeed": "0.19.2"}, "attention": "flash", "recompute": "none"}
    return plan_of(GPT, stack=stack, parallel={"strategy": "zero2", "dp": 4})


def test_null_is_said_as_none() -> None:
    given = plan("megatron-bridge", strategy="megatron-ddp").model_copy(update={"trainable": "all"})
    adapter = plan_of(adapter={"kind": "lora", "r": 8, "targets": ["q_proj"]}).adapter
    said = problems(given.model_copy(update={"adapter": adapter}))["adapter.kind"]
    assert "none can be estimated so far" in said
