"""Formats of checkpoints that a framework cannot write are refused with the one that it writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.answer.disk import beside
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

LORA = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "fp32"}
MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
ZERO: dict[str, Any] = {"parallel": {"strategy": "zero3", "dp": 4}, "precision": MIXED}
FSDP: dict[str, Any] = {"parallel": {"strategy": "fsdp2", "dp": 4}}


@pytest.mark.parametrize(
    ("named", "sections", "writes"),
    [
        ("adapter", {}, "trainer"),
        ("deepspeed", FSDP, "fsdp-sharded"),
        ("colossalai", {}, "trainer"),
        ("megatron-dist", {}, "trainer"),
        ("megatron-torch", FSDP, "fsdp-sharded"),
        ("fsdp-full", ZERO, "deepspeed"),
        ("fsdp-sharded", ZERO, "deepspeed"),
        ("torch-sharded", ZERO, "deepspeed"),
    ],
)
def test_a_format_of_another_engine(named: str, sections: dict[str, Any], writes: str) -> None:
    with pytest.raises(InputError) as caught:
        check(plan_of(**sections, save={"format": named}))
    (problem,) = caught.value.problems
    assert problem.path == "save.format"
    assert problem.fix == f"Leave it out: transformers writes {writes}."


@pytest.mark.parametrize(
    ("named", "sections"),
    [
        ("adapter", {"adapter": LORA}),
        ("deepspeed", ZERO),
        ("fsdp-sharded", {"parallel": {"strategy": "ddp", "dp": 4}}),
        ("fsdp-full", FSDP),
        ("torch-sharded", FSDP),
        ("safetensors", ZERO),
        ("torch", {}),
    ],
)
def test_formats_that_can_be_written(named: str, sections: dict[str, Any]) -> None:
    check(plan_of(**sections, save={"format": named}))


PPO: dict[str, Any] = {
    "task": "ppo",
    "adapter": LORA,
    "roles": {"reward": {}, "critic": {}, "reference": {}, "rollout": {"engine": {"tokens": 1024}}},
}


def test_roles_without_the_policys_adapter_do_not_refuse_its_format() -> None:
    """A role has no `save`; a critic that is trained whole is saved in the format of its framework."""
    named, left = (beside(estimate(plan_of(**PPO, save=save))).checkpoint for save in ({"format": "adapter"}, {}))
    critics = [[one for one in found.files if one.name.startswith("critic: ")] for found in (named, left)]
    assert critics[0] == critics[1] != []
    assert named.format.name == "adapter"


def test_a_roles_plan_names_a_wrong_format_once() -> None:
    with pytest.raises(InputError) as caught:
        check(plan_of(**PPO, save={"format": "deepspeed"}))
    assert [problem.path for problem in caught.value.problems] == ["save.format"]
