"""What is not counted of preference and reinforcement learning: losses without rules, a critic that nobody names."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.preference_row import SWIFT, TRL
from trainledger.facts.preferences import SAMPLED
from trainledger.ledger.scoring import trainer_of
from trainledger.plan.schema import Plan

TRANSFORMERS = "transformers"
PPO = "ppo"


def losses_beside(plan: Plan) -> Iterator[str]:
    """A line beside the verdict where the loss is another than the one that is counted."""
    stack = plan.stack
    if plan.task != SAMPLED or stack.framework != TRANSFORMERS:
        return
    row = trainer_of(plan)
    if row is not None and SWIFT not in stack.versions:
        return
    whose = f"{SWIFT}'s own trainer" if SWIFT in stack.versions else f"the trainer (stack.versions: {TRL} is not named)"
    instead = "TRL's" if row is not None else "a plain cross-entropy over all tokens"
    yield (
        f"not counted: how {whose} makes its loss of the logits; {instead} stands for it, and the real run may take "
        "more or less there"
    )


def critic_beside(plan: Plan) -> Iterator[str]:
    """A line beside the verdict where a plan of PPO names no critic."""
    if plan.task == PPO and plan.roles is not None and plan.roles.critic is None:
        yield (
            "not counted: a critic, which PPO trains beside the policy unless advantages need no values; name it with "
            "roles: {critic: {}}"
        )
