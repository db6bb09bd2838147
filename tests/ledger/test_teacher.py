"""Distillation: a frozen teacher beside the student, whose logits the loss reads; and reward models' one number."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.base.problems import InputError
from trainledger.lines.line import Account
from trainledger.model.build import build
from trainledger.model.counts import total

TRL = {"versions": {"torch": "2.14.1", "transformers": "5.24.0", "trl": "1.16.0", "accelerate": "1.15.0"}}
WIDER = {**LLAMA, "num_hidden_layers": 6}
LOGITS = 512 * 1024 * 2  # of one sequence, in 16 bits


def made(roles: dict[str, Any] | None = None, task: str = "distill", **sections: Any) -> Estimate:
    return estimate(
        plan_of(task=task, stack=TRL, roles={"teacher": {"model": WIDER}} if roles is None else roles, **sections)
    )


def largest(found: Estimate, moment: str, account: Account) -> int:
    here = next(one for one in found.ledger.moments if one.name == moment)
    return sum(found.ledger.lines[line].unit * copies for line, copies in here.live
               if found.ledger.lines[line].account is account)  # fmt: skip


def test_the_teachers_weights_lie_there_and_have_no_states() -> None:
    states, alone = states_of(made().ledger), states_of(made({}, "sft").ledger)
    assert states["weights"] - alone["weights"] == pytest.approx(2 * total(build(WIDER)), rel=0.01)
    assert states["optimizer_states"] == alone["optimizer_states"]


def test_its_forward_leaves_nothing_but_the_logits_that_the_loss_reads() -> None:
    found = made()
    assert any(line.name.startswith("teacher: ") and line.account is Account.FORWARD for line in found.ledger.lines)
    at_loss = largest(found, "step 2: loss", Account.LOGITS)
    assert at_loss > 10 * LOGITS
    few = made(batch={"micro_batch": 1, "sequence": 512, "loss_tokens": 64})
    assert largest(few, "step 2: loss", Account.LOGITS) <= at_loss


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"roles": {}}, "roles.teacher"),
        ({"roles": {"teacher": {"model": WIDER}, "reference": {}}}, "roles.reference"),
        ({"roles": {"teacher": {"model": WIDER, "placement": 2}}}, "roles.teacher"),
        ({"roles": {"teacher": {"model": WIDER}}, "task": "sft"}, "roles"),
        ({"roles": {"teacher": {"model": WIDER}}, "task": "grpo"}, "roles.teacher"),
    ],
)
def test_what_is_refused_by_name(sections: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        made(**sections)
    assert path in [one.path for one in caught.value.problems]


def test_a_reward_model_makes_no_logits_and_reads_pairs() -> None:
    found, plain = made({}, "reward"), made({}, "sft")
    vocabulary = LLAMA["vocab_size"] * LLAMA["hidden_size"]
    assert found.parameters.total == plain.parameters.total - vocabulary + LLAMA["hidden_size"]
    assert max(line.unit for line in found.ledger.lines if line.account is Account.LOGITS) < LOGITS / 100
    inputs = [max(line.unit for line in one.ledger.lines if line.account is Account.INPUTS) for one in (found, plain)]
    assert inputs[0] == 2 * inputs[1]
