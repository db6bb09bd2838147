"""What ColossalAI's plugins have no rule for is refused by name, and losses over pairs elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

COLOSSAL = {"framework": "colossalai", "versions": {}}


def problems(**sections: Any) -> list[str]:
    base: dict[str, Any] = {"parallel": {"strategy": "zero2", "dp": 2}, "stack": COLOSSAL}
    with pytest.raises(InputError) as caught:
        estimate(plan_of(**{**base, **sections}))
    return [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"parallel": {"strategy": "zero3", "dp": 2}}, "parallel.strategy"),
        ({"parallel": {"strategy": "ddp", "dp": 2}}, "parallel.strategy"),
        ({"offload": {"optimizer": "nvme"}}, "offload.optimizer"),
        ({"optimizer": {"name": "lion"}}, "optimizer.name"),
        ({"precision": {"master": "bf16"}}, "precision.master"),
        ({"precision": {"reduce": "fp32"}}, "precision.reduce"),
        ({"adapter": {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "fp32"}}, "adapter"),
        ({"task": "simpo", "stack": {**COLOSSAL, "loss": "fused-linear"}}, "stack.loss"),
        ({"task": "orpo", "stack": {"framework": "transformers"}}, "task"),
    ],
)
def test_by_name(sections: dict[str, Any], path: str) -> None:
    assert problems(**sections) == [path]


TENSOR = {"strategy": "none", "tp": 2}


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"offload": {"optimizer": "cpu"}}, "offload.optimizer"),
        ({"adapter": {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}}, "parallel.tp"),
        ({"task": "ppo", "roles": {"rollout": {"engine": {"tokens": 64}}}}, "roles.rollout"),
        ({"task": "ppo", "roles": {"critic": {"states": {"training": "offloaded"}}}}, "roles.critic.states"),
        ({"task": "ppo", "roles": {"policy": {"states": {"rollout": "offloaded"}}}}, "roles.policy.states"),
        (
            {"task": "ppo", "parallel": {"strategy": "zero2", "dp": 2}, "roles": {"reward": {"placement": 2}}},
            "roles.reward.placement",
        ),
        ({"task": "ppo", "stack": {**COLOSSAL, "loss": "fused-linear"}}, "stack.loss"),
    ],
)
def test_of_the_hybrid_plugin_and_of_ppo(sections: dict[str, Any], path: str) -> None:
    assert path in problems(**{"parallel": TENSOR, **sections})
