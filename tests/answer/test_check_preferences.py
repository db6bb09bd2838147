"""What is refused of preference losses: releases without rules, losses that their trainers do not run, strategies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.base.problems import InputError

VERSIONS = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.15.0"}
TRL = {"versions": {**VERSIONS, "trl": "1.16.0"}, "loss": "fused-linear"}


def problems(**sections: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        check(plan_of(**{"task": "dpo", "stack": TRL, **sections}))
    return [one.path for one in caught.value.problems]


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"stack": {"versions": {**VERSIONS, "trl": "1.5.1"}, "loss": "full-fp32"}}, "task"),
        ({"stack": {"versions": {**VERSIONS, "trl": "1.12.0"}, "loss": "fused-linear"}}, "stack.loss"),
        ({"stack": {"versions": VERSIONS, "loss": "fused-linear"}}, "task"),
        ({"task": "simpo"}, "task"),
        ({"stack": {**TRL, "loss": "full-fp32"}}, "stack.loss"),
        ({"parallel": {"strategy": "fsdp1", "dp": 4}}, "parallel.strategy"),
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


def test_older_trainers_read_all_logits() -> None:
    for release in ("1.6.0", "1.13.0", "1.14.2"):
        check(plan_of(task="dpo", stack={"versions": {**VERSIONS, "trl": release}, "loss": "full-fp32"}))


@pytest.mark.parametrize(
    "task, said", [("dpo", ("trl from 1.6 on, colossalai", "trl: 1.16.0")), ("orpo", ("of colossalai ", ""))]
)
def test_only_releases_that_have_the_trainer_are_named(task: str, said: tuple[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        check(plan_of(task=task, stack={"versions": VERSIONS}))
    (problem,) = [one for one in caught.value.problems if one.path == "task"]
    assert said[0] in problem.allowed
    assert said[1] in problem.fix
    assert bool(said[1]) == bool(problem.fix)
