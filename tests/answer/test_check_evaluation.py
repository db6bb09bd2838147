"""Keys of an evaluation that stages do not have are refused, each by its name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check_evaluation import evaluation_problems

PIPELINE = {"strategy": "fsdp2", "pp": 2, "dp": 2, "cp": 3}
KEPT = {"prediction_loss_only": False, "accumulation": 2}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, []),
        (KEPT, ["prediction_loss_only", "accumulation"]),
        ({"generation": {"batch": 1, "prompt": 8, "tokens": 8}}, ["generation"]),
        ({"sequence": 100}, ["sequence"]),
    ],
)
def test_what_stages_do_not_have_is_refused(given: dict[str, Any], names: list[str]) -> None:
    plan = plan_of(evaluation=given, parallel=PIPELINE, batch={"accumulation": 2})
    assert [one.path for one in evaluation_problems(plan)] == [f"evaluation.{name}" for name in names]


def test_one_stage_keeps_logits() -> None:
    assert [*evaluation_problems(plan_of(evaluation=KEPT))] == []
