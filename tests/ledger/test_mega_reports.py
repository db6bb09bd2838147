"""What a step keeps of each micro-batch's loss under Megatron-Core: one report for each until the step ends."""

from __future__ import annotations

import pytest

from tests.ledger.test_megatron import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import moment_of

REPORT, LOSS = "reported loss of a micro-batch", "loss"


def found(micro_batches: int, pp: int = 1) -> Estimate:
    plan = plan_of(LLAMA, parallel={"dp": 1, "pp": pp}, batch={"accumulation": micro_batches})
    return estimate(plan, pp - 1)


def copies(answer: Estimate, name: str, moment: str) -> int:
    return sum(count for line, count in moment_of(answer, moment).live if answer.ledger.lines[line].name == name)


@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize("micro_batches", [1, 8, 64])
def test_every_micro_batch_is_reported_until_the_step_ends(micro_batches: int, pp: int) -> None:
    answer = found(micro_batches, pp)
    for step in (1, 2):
        assert copies(answer, REPORT, f"step {step}: clip") == micro_batches
        assert copies(answer, LOSS, f"step {step}: clip") == 0


def test_steps_add_nothing() -> None:
    moments = {one.name: one.allocated for one in found(8).ledger.moments}
    assert moments["step 1: optimizer"] == moments["step 2: optimizer"]


def test_a_stage_without_the_loss_reports_none() -> None:
    plan = plan_of(LLAMA, parallel={"dp": 1, "pp": 2}, batch={"accumulation": 8})
    assert copies(estimate(plan, 0), REPORT, "step 2: clip") == 0
