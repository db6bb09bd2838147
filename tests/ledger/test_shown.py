"""What TRL's supervised trainer makes of all logits for its log: traces of its code are in tests/witness."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.facts.supervised import SHOWN, shown_of
from trainledger.ledger.scoring import scoring_of
from trainledger.plan.schema import Plan

SEQUENCE, VOCAB, FP32 = 512, 1024, 4


def sft(trl: str, micro: int = 2, task: str = "sft", **stack: Any) -> Plan:
    versions = {"torch": "2.13.0", "accelerate": "1.15.0", "transformers": "4.57.1", "trl": trl}
    return plan_of(
        task=task,
        precision={"autocast": True},
        batch={"micro_batch": micro, "sequence": SEQUENCE},
        stack={"versions": versions, **stack},
    )


def loss(plan: Plan) -> int:
    return max(one.allocated for one in estimate(plan).ledger.moments if one.name == "step 2: loss")


def test_accuracy_takes_a_copy_of_the_logits_in_fp32() -> None:
    """Beside these logits and the log-probabilities that are saved; before, the loss's own copy is the most."""
    logits = 2 * SEQUENCE * VOCAB * FP32
    before, after = (loss(sft(trl)) for trl in ("0.14.0", "0.21.0"))
    assert logits // 2 - logits // 100 < after - before <= logits // 2


def test_two_copies_at_once_where_entropies_are_of_one() -> None:
    one, two = (loss(sft(trl)) for trl in ("0.21.0", "1.5.1"))
    assert two - one == 2 * (SEQUENCE - 1) * VOCAB * FP32


def test_a_copy_of_one_sequence_is_a_view() -> None:
    assert loss(sft("0.21.0", micro=1)) == loss(sft("0.14.0", micro=1))


@pytest.mark.parametrize("stack", [{"kernels": ["liger"]}, {"loss": "fused-linear"}])
def test_kernels_that_hand_out_no_logits(stack: dict[str, Any]) -> None:
    assert scoring_of(sft("1.5.1", **stack)).shows is None


def test_ranks_that_share_a_sequence_copy_nothing() -> None:
    """Their labels are moved already, so that no logits are cut off."""
    alone = sft("1.5.1")
    shared = alone.model_copy(update={"parallel": alone.parallel.model_copy(update={"cp": 2})})
    assert scoring_of(alone).shows is not None
    assert scoring_of(shared).shows is None


def test_other_tasks_and_trainers_have_no_such_log() -> None:
    assert scoring_of(sft("1.5.1", task="pretrain")).shows is None
    assert shown_of({"accelerate": "1.15.0"}) is None
    assert shown_of({"trl": "0.14.0"}) is None
    assert shown_of({"trl": "1.15.0"}) is None


def test_releases_follow_one_another() -> None:
    assert [row.since for row in SHOWN][:-1] == [row.until for row in SHOWN][1:]
