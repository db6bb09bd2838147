"""What is refused of preference losses: releases without rules, losses that their trainers do not run, strategies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.base.problems import InputError

VERSIONS = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.15.0"}
TRL = {"versions": {**VERSIONS, "trl": "1.16.0"}, "loss": "fused-linear"}


def old(trl: str) -> dict[str, Any]:
    return {"versions": {**VERSIONS, "trl": trl}, "loss": "full-fp32"}


def factory(release: str) -> dict[str, Any]:
    return {"versions": {**VERSIONS, "llamafactory": release}, "loss": "full-fp32"}


def problems(**sections: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        check(plan_of(**{"task": "dpo", "stack": TRL, **sections}))
    return [one.path for one in caught.value.problems]


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"stack": {"versions": {**VERSIONS, "trl": "1.12.0"}, "loss": "fused-linear"}}, "stack.loss"),
        ({"stack": {"versions": VERSIONS, "loss": "fused-linear"}}, "task"),
        ({"task": "simpo"}, "stack.loss"),
        ({"stack": {**TRL, "loss": "full-fp32"}}, "stack.loss"),
        ({"stack": old("0.15.2"), "parallel": {"strategy": "fsdp1", "dp": 4}}, "parallel.strategy"),
        ({"stack": old("0.28.0"), "parallel": {"strategy": "fsdp2", "dp": 4}}, "parallel.strategy"),
        ({"task": "kto", "stack": old("1.2.0"), "parallel": {"strategy": "fsdp1", "dp": 4}}, "parallel.strategy"),
        ({"stack": factory("0.9.3"), "parallel": {"strategy": "fsdp1", "dp": 4}}, "parallel.strategy"),
        ({"adapter": {"kind": "prompt-tuning", "options": {"num_virtual_tokens": 8}}}, "adapter.kind"),
    ],
)
def test_by_name(sections: dict[str, Any], path: str) -> None:
    assert problems(**sections) == [path]


def test_a_missing_release_is_asked_for() -> None:
    with pytest.raises(InputError) as caught:
        check(plan_of(task="dpo", stack={"versions": VERSIONS, "loss": "fused-linear"}))
    assert "stack.versions" in caught.value.problems[0].fix


def test_what_has_rules_passes() -> None:
    check(plan_of(task="dpo", stack=TRL))
    check(plan_of(task="kto", stack=TRL, parallel={"strategy": "zero2", "dp": 2}))


ALONE = {"task": "grpo", "roles": {"policy": {}}}


@pytest.mark.parametrize(
    ("stack", "path"),
    [
        (old("0.14.0"), "task"),
        ({**old("0.19.1"), "loss": "fused-linear"}, "stack.loss"),
        ({**TRL, "loss": "full-fp32"}, "stack.loss"),
    ],
)
def test_sampled_sequences_by_name(stack: dict[str, Any], path: str) -> None:
    assert problems(**ALONE, stack=stack) == [path]


@pytest.mark.parametrize("stack", [*(old(one) for one in ("0.15.2", "0.22.0", "1.9.0", "1.14.2")), TRL])
def test_sampled_sequences_that_have_rules(stack: dict[str, Any]) -> None:
    check(plan_of(**ALONE, stack=stack))


def test_another_frameworks_trainer_is_not_that_of_a_package_beside_it() -> None:
    """verl installs TRL for a head of its own."""
    check(plan_of(**ALONE, stack={"framework": "verl", "versions": {**VERSIONS, "trl": "0.9.6"}, "loss": "full"}))


@pytest.mark.parametrize("task", ["dpo", "kto", "orpo", "simpo"])
@pytest.mark.parametrize("release", ["0.8.6", "0.12.0", "0.19.1", "1.5.1", "1.14.2"])
def test_older_trainers_read_all_logits(task: str, release: str) -> None:
    check(plan_of(task=task, stack=old(release)))


@pytest.mark.parametrize(
    ("stack", "strategy"), [(old("0.16.1"), "fsdp1"), (old("0.29.1"), "fsdp2"), (factory("0.9.4"), "fsdp2")]
)
def test_a_reference_that_its_trainer_wraps(stack: dict[str, Any], strategy: str) -> None:
    check(plan_of(task="dpo", stack=stack, parallel={"strategy": strategy, "dp": 4}))


def test_an_adapter_brings_no_model_to_wrap() -> None:
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}
    check(plan_of(task="dpo", stack=old("0.9.6"), adapter=adapter, parallel={"strategy": "fsdp1", "dp": 4}))


def test_trainers_are_named_and_a_release_is_asked_for() -> None:
    with pytest.raises(InputError) as caught:
        check(plan_of(task="orpo", stack={"versions": VERSIONS}))
    (problem,) = [one for one in caught.value.problems if one.path == "task"]
    assert "trl" in problem.allowed
    assert "colossalai" in problem.allowed
    assert "trl: 1.16.0" in problem.fix
