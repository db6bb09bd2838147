"""What of an evaluation cannot be estimated where stages run it: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

LOSS_ALONE = "Megatron's evaluate and torchtitan's Validator keep the loss alone"


def evaluation_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of an evaluation under Megatron-Core, or over the stages of a pipeline."""
    given = plan.evaluation
    if given is None or not (plan.stack.framework in FRAMEWORKS or degrees(plan).pp > 1):
        return
    if not given.prediction_loss_only:
        yield Problem("evaluation.prediction_loss_only", "found false", LOSS_ALONE, "Leave it out.")
    if given.accumulation is not None:
        yield Problem("evaluation.accumulation", f"found {given.accumulation}", LOSS_ALONE, "Leave it out.")
    if given.generation is not None:
        yield Problem("evaluation.generation", "given", "none can be estimated there so far", "Leave it out.")
    if given.sequence and given.sequence % plan.parallel.cp:
        found = f"found {given.sequence} with cp {plan.parallel.cp}"
        yield Problem("evaluation.sequence", found, "a multiple of the ranks that a sequence is spread over is needed")
