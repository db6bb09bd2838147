"""Roles under Megatron-Core: what each holds on its stage, what comes for a phase, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.answer.test_acting import held, hosted, row
from tests.ledger.test_megatron import LLAMA, PRECISION
from trainledger.answer.acting import rows_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.base.problems import InputError
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.model.counts import total

ENGINE: dict[str, Any] = {"engine": {"tokens": 4096, "sleep_level": 2}}
AWAY = {"states": {"idle": "offloaded"}}
WIDE = {**LLAMA, "num_hidden_layers": 4}
STATES = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)


def made(roles: dict[str, Any], task: str = "grpo", rank: int | None = None, **parts: Any) -> Estimate:
    plan = {
        "model": parts.pop("model", WIDE),
        "task": task,
        "precision": PRECISION,
        "optimizer": {"name": "adamw", "implementation": "fused", "grad_clip": 1.0},
        "batch": {"micro_batch": 1, "sequence": 512, **parts.pop("batch", {})},
        "parallel": {"strategy": "megatron-distopt", **parts.pop("parallel", {})},
        "stack": {
            "framework": "megatron-bridge",
            "versions": {"torch": "2.8.0"},
            "attention": "flash",
            **parts.pop("stack", {}),
        },
        "roles": roles,
    }
    return estimate(draft_of(Document(plan, {})).plan, rank)


def live(found: Estimate, phase: str, *accounts: Account) -> int:
    """Bytes of the policy's own lines of these accounts at a phase's moment."""
    name = row(found, phase).moment
    moment = next(one for one in found.groups[0].ledger.moments if one.name == name)
    lines = found.groups[0].ledger.lines
    own = [(lines[number], copies) for number, copies in moment.live if lines[number].account in accounts]
    return sum(
        line.unit * copies for line, copies in own if line.name.partition(": ")[0] not in ("reference", "rollout")
    )


def test_phases_come_in_order_with_a_reference_of_the_whole_model() -> None:
    found = made({"reference": {}, "rollout": ENGINE})
    assert [one.phase for one in rows_of(found.plan, found.groups)] == [
        "sync", "rollout", "log-probs", "reference", "training",
    ]  # fmt: skip
    assert held(found, "rollout", "reference") == pytest.approx(2 * total(model_of(found.plan)), rel=0.01)


def test_what_leaves_comes_back_for_the_phase_that_needs_it() -> None:
    """Weights alone for the engine and the log-probabilities, all for the update. Gradients are thrown away."""
    found = made({"policy": AWAY, "rollout": ENGINE}, parallel={"world": 2})
    states = states_of(made({}, parallel={"world": 2}).ledger)  # of the policy alone
    weights = states["weights"]
    assert live(found, "rollout", *STATES) == 0
    assert live(found, "sync", *STATES) == live(found, "log-probs", *STATES) == weights
    assert live(found, "training", *STATES) >= sum(states.values())
    assert hosted(found, "") == weights + states["master_weights"] + states["optimizer_states"]


@pytest.mark.parametrize(
    ("state", "left"),
    [
        ("weights-offloaded", ("master_weights", "optimizer_states")),
        ("optimizer-offloaded", ("weights", "gradients")),
        ("resident", ("weights", "gradients", "master_weights", "optimizer_states")),
    ],
)
def test_a_part_of_the_states_can_leave(state: str, left: tuple[str, ...]) -> None:
    found = made({"policy": {"states": {"idle": state}}, "rollout": ENGINE})
    states = states_of(made({}).ledger)
    assert live(found, "rollout", *STATES) == sum(states[name] for name in left)
    assert live(found, "training", *STATES) >= sum(states.values())


def test_every_role_lies_on_its_own_stage_and_the_worst_is_shown() -> None:
    parallel = {"pp": 2, "world": 2}
    stages = [made({"reference": {}, "rollout": ENGINE}, rank=rank, parallel=parallel) for rank in (0, 1)]
    whole = made({"reference": {}, "rollout": ENGINE}, parallel=parallel)
    assert whole.ledger.rank in (0, 1)
    assert whole.peak.allocated.expected == max(one.peak.allocated.expected for one in stages)
    parts = [held(one, "rollout", "reference") for one in stages]
    assert sum(parts) == pytest.approx(2 * total(model_of(whole.plan)), rel=0.01)  # no table is tied
    assert row(stages[1], "log-probs").allocated > row(stages[0], "log-probs").allocated  # where logits are


def test_a_critic_has_degrees_of_its_own_and_a_head_of_one_number() -> None:
    parallel = {"tp": 2, "sp": True, "world": 2}
    roles = {"critic": {"parallel": {"tp": 1}}, "rollout": ENGINE}
    found = made(roles, "ppo", parallel=parallel)
    spread = made({"critic": {}, "rollout": ENGINE}, "ppo", parallel=parallel)
    count = total(model_of(found.plan)) - WIDE["vocab_size"] * WIDE["hidden_size"]
    alone, shared = (
        sum(line.unit for line in one.ledger.lines if line.name == "critic: weight buffer") for one in (found, spread)
    )
    assert alone == pytest.approx(2 * count, rel=0.01)
    assert shared == pytest.approx(count, rel=0.01)


def test_an_engine_is_sent_weights_whose_parts_are_joined() -> None:
    found = made({"rollout": ENGINE}, parallel={"tp": 2, "sp": True, "world": 2})
    words = 2 * WIDE["vocab_size"] * WIDE["hidden_size"]
    assert [line.unit for line in found.ledger.lines if line.account is Account.SYNC] == [2 * words]


def test_a_role_apart_has_a_process_of_its_own() -> None:
    found = made({"reference": {"placement": 2}, "rollout": ENGINE}, parallel={"world": 2})
    names = {line.name for line in found.groups[1].ledger.lines}
    assert "reference: Transformer Engine's cuBLAS workspace" in names
    assert found.groups[1].devices == 2


@pytest.mark.parametrize(
    ("roles", "parts", "path"),
    [
        ({"reference": {}}, {}, "roles.rollout"),
        ({"rollout": ENGINE, "reference": {"parallel": {"strategy": "megatron-fsdp"}}}, {},
         "roles.reference.parallel.strategy"),
        ({"rollout": ENGINE}, {"model": {**WIDE, "num_nextn_predict_layers": 1}}, "model.num_nextn_predict_layers"),
    ],
)  # fmt: skip
def test_what_is_refused_by_name(roles: dict[str, Any], parts: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        made(roles, **parts)
    assert path in [one.path for one in caught.value.problems]
