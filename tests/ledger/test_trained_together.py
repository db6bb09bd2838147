"""ColossalChat's PPO: two trained roles in one function, frozen ones beside them only while experience is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.test_layout_amp import WIDE, at, made, part
from trainledger.answer.acting import rows_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.ledger.trained_together import parted_step, returning, together
from trainledger.lines.line import Account
from trainledger.lines.stream import EMPTY, Segment

RECORDS = Path(__file__).parent.parent / "data" / "records_colossal_ppo.jsonl"
ROWS = {row["id"]: row for row in map(json.loads, RECORDS.read_text().splitlines())}


def step_of(*events: int, returned: bool) -> list[Segment]:
    """Two calls and a step whose events say which they are."""
    moments = ("forward", "loss", "backward of the loss") * 2
    found = [Segment(f"step 1: {name}", (at,)) for name, at in zip(moments, events, strict=True)]
    second = [Segment("step 1: forward", (-1,))] if returned else []
    update = [Segment(f"step 1: {name}", (at,)) for name, at in (("clip", 70), ("optimizer", 80), ("zero_grad", 90))]
    return [*found[:3], *second, *found[3:], *update]


def test_a_step_is_cut_into_calls_update_and_ending() -> None:
    made_ = parted_step(step_of(1, 2, 3, 4, 5, 6, returned=True))
    assert [[one.events for one in turn.micro] for turn in made_.turns] == [[(1,), (2,), (3,)], [(4,), (5,), (6,)]]
    assert [len(turn.returned) for turn in made_.turns] == [0, 1]
    assert [one.events for one in (*made_.update, *made_.ending)] == [(70,), (80,), (90,)]


def test_both_run_backward_before_either_steps_and_gradients_go_last() -> None:
    steps = {
        "a": parted_step(step_of(1, 2, 3, 4, 5, 6, returned=True)),
        "b": parted_step(step_of(11, 12, 13, 14, 15, 16, returned=False)),
    }
    order = [(role, one.events[0]) for role, one in together(steps)]
    assert [at for _, at in order] == [1, 2, 3, 11, 12, 13, -1, 4, 5, 6, 14, 15, 16, 70, 80, 70, 80, 90, 90]
    assert [role for role, at in order if at in (80, 90)] == ["a", "b", "a", "b"]
    assert not list(returning(steps))  # nothing was named before


def ppo(**sections: Any) -> Estimate:
    return made(task="ppo", stack={"recompute": "full"}, **sections)


def test_a_plan_without_roles_has_those_of_the_trainer() -> None:
    found = ppo()
    assert [one.phase for one in rows_of(found.plan, found.groups)] == [
        "rollout", "log-probs", "reference", "rewards", "values", "training", "critic training"
    ]  # fmt: skip
    assert found.groups[0].roles == ("policy", "reference", "critic", "reward")


def shares(found: Estimate, phase: str) -> dict[str, int]:
    row = next(one for one in rows_of(found.plan, found.groups) if one.phase == phase)
    return {one.role: one.bytes for one in row.shares}


def test_frozen_models_leave_for_training() -> None:
    found = ppo()
    assert shares(found, "training")["reference"] == shares(found, "critic training")["reward"] == 0
    assert shares(found, "rollout")["reference"] == pytest.approx(2 * part(found, 4), rel=0.01)
    kept = sum(line.unit * copies for line, copies in found.ledger.host if line.name.startswith("reference"))
    assert kept == pytest.approx(2 * part(found, 4), rel=0.01)


def test_what_the_allocator_caches_stays_as_they_leave() -> None:
    assert not any(EMPTY in segment.events for segment in ppo().ledger.segments)


def test_the_critic_steps_beside_the_policys_fp32_gradients() -> None:
    moment = max(
        (one for one in ppo().ledger.moments if one.name == "step 2: critic optimizer"), key=lambda one: one.allocated
    )
    lines = ppo().ledger.lines
    gradients = [lines[line].name for line, _ in moment.live if lines[line].account is Account.GRADIENTS]
    assert any(name.startswith("critic: fp32 gradient") for name in gradients)
    assert any(name.startswith("fp32 gradient") for name in gradients)


def test_the_policy_steps_beside_the_critics_gradients() -> None:
    found = ppo().ledger
    moment = next(one for one in found.moments if one.name == "step 1: optimizer")
    waiting = [found.lines[line].name for line, _ in moment.live if found.lines[line].account is Account.GRADIENTS]
    assert any(name.startswith("critic: model.layers") for name in waiting)


@pytest.mark.parametrize(("moment", "alive"), [("step 2: critic optimizer", True), ("step 2: rollout", False)])
def test_logits_are_named_until_the_function_returns(moment: str, alive: bool) -> None:
    found = ppo().ledger
    live = {found.lines[line].name for one in found.moments if one.name == moment for line, _ in one.live}
    assert ("logits" in live) is alive


def test_the_policys_logits_of_experience_lie_beside_the_references() -> None:
    found = ppo().ledger
    live = {found.lines[line].name for one in found.moments if one.name == "step 1: values" for line, _ in one.live}
    assert {"log-probs: logits", "reference: logits"} <= live
    gone = {found.lines[line].name for one in found.moments if one.name == "step 1: loss" for line, _ in one.live}
    assert not {"log-probs: logits", "reference: logits"} & gone


def test_experience_can_be_made_of_more_sequences() -> None:
    roles = {"policy": {"forward_batch": 8}, "reference": {"forward_batch": 8}, "critic": {}, "reward": {}}
    few, many = ppo(roles={**roles, "policy": {}, "reference": {}}), ppo(roles=roles)
    assert at(many.ledger, "step 1: reference") > at(few.ledger, "step 1: reference")
    assert at(many.ledger, "step 1: loss") == at(few.ledger, "step 1: loss")


@pytest.mark.parametrize("name", ROWS)
def test_published_runs_are_below_their_estimates(name: str) -> None:
    """No optimizer's states were there (docs/assumptions.md): the estimate has those of both."""
    row = ROWS[name]
    found = estimate(draft_of(Document(row["plan"], {})).plan)
    assert 0 < found.steps.allocated.expected / row["measured"]["bytes"] - 1 < 0.4


@pytest.mark.parametrize("name", ["colossal-ppo-tp4-bs1", "colossal-ppo-tp8-bs4"])
def test_published_runs_are_what_experience_of_eight_takes_beside_gradients(name: str) -> None:
    """Their peak does not grow with the batch: it is that of experience, of the 8 sequences at a time that the README
    of ColossalChat asks for, beside gradients that no optimizer has taken."""
    row = ROWS[name]
    batch = {"forward_batch": 8}
    roles = {"policy": batch, "critic": batch, "reference": batch, "reward": batch}
    found = estimate(draft_of(Document({**row["plan"], "roles": roles}, {})).plan).ledger
    end = next(one for one in found.moments if one.name == "step 1: critic backward of the embedding")
    kept = [(found.lines[line], copies) for line, copies in end.live]
    gradients = sum(line.unit * copies for line, copies in kept if line.account is Account.GRADIENTS)
    assert at(found, "step 1: reference") + gradients == pytest.approx(row["measured"]["bytes"], rel=0.02)


def test_heads_that_do_not_divide_are_named() -> None:
    with pytest.raises(Exception, match="kv_heads"):
        made({**WIDE, "num_key_value_heads": 2})
