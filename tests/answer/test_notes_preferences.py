"""What is said beside a verdict on sampled sequences where no rule says how their loss reads the logits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.notes_preferences import critic_beside, losses_beside

ENGINE = {"engine": {"tokens": 4096}}
VERSIONS = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.15.0"}


def said(task: str = "grpo", **stack: Any) -> list[str]:
    stack = {"versions": VERSIONS, "loss": "full-fp32", **stack}
    return list(losses_beside(plan_of(task=task, roles={"policy": {}} if task == "grpo" else None, stack=stack)))


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({}, ("trl", "plain cross-entropy")),
        ({"ms-swift": "4.6.0"}, ("ms-swift's own", "plain cross-entropy")),
        ({"ms-swift": "4.6.0", "trl": "0.29.1"}, ("ms-swift's own", "TRL's")),
    ],
)
def test_what_stands_for_it_is_named(versions: dict[str, str], words: tuple[str, ...]) -> None:
    (line,) = said(versions={**VERSIONS, **versions})
    assert all(word in line for word in words)
    assert "more or less" in line


def test_nothing_is_said_where_a_rule_holds() -> None:
    assert not said(versions={**VERSIONS, "trl": "0.19.1"})
    assert not said(framework="verl", loss="full")
    assert not said(task="sft")


@pytest.mark.parametrize(("roles", "told"), [({"rollout": ENGINE}, 1), ({"rollout": ENGINE, "critic": {}}, 0)])
def test_ppo_without_a_critic_says_so(roles: dict[str, Any], told: int) -> None:
    plan = plan_of(task="ppo", roles=roles, stack={"framework": "verl", "loss": "full"})
    assert len(list(critic_beside(plan))) == told
    assert not list(critic_beside(plan_of()))
