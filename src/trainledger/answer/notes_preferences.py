"""Trainers whose loss over sampled sequences no rule says, and what stands for it."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.preference_row import SWIFT, TRL
from trainledger.facts.preferences import SAMPLED
from trainledger.ledger.scoring import trainer_of
from trainledger.plan.schema import Plan

TRANSFORMERS = "transformers"


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
