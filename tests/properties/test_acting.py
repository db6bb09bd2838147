"""Whatever the plan says of where states are: their bytes are on the device or in the host's memory, never in both."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.acting import PhaseRow, groups_of, rows_of
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import model_of

STACK = {"framework": "verl", "loss": "full", "attention": "flash", "recompute": "full"}
SMALL = {**LLAMA, "num_hidden_layers": 1}
PHASES = ("idle", "sync", "rollout", "log-probs", "reference", "values", "training")
STATES = st.dictionaries(st.sampled_from(PHASES), st.sampled_from(["resident", "offloaded"]), max_size=4)


def rows(roles: dict[str, Any]) -> tuple[tuple[PhaseRow, ...], int]:
    plan = plan_of(SMALL, task="ppo", roles=roles, stack=STACK, batch={"micro_batch": 1, "sequence": 64})
    ledger = rank_ledger(plan, model_of(plan), "sm80")
    groups = groups_of(plan, ledger, "sm80", None)
    return rows_of(plan, groups), sum(line.unit * copies for line, copies in groups[0].ledger.host)


def acting(policy: dict[str, str], critic: dict[str, str], reference: dict[str, str]) -> dict[str, Any]:
    states = {"policy": policy, "critic": critic, "reference": reference}
    return {**{name: {"states": one} for name, one in states.items()}, "rollout": {"engine": {"tokens": 64}}}


ALL_RESIDENT, _ = rows(acting({}, {}, {}))


@settings(max_examples=25, deadline=None)
@given(STATES, STATES, STATES)
def test_states_are_on_the_device_or_in_the_host(
    policy: dict[str, str], critic: dict[str, str], reference: dict[str, str]
) -> None:
    found, hosted = rows(acting(policy, critic, reference))
    away = 0
    for one, whole in zip(found, ALL_RESIDENT, strict=True):
        assert one.phase == whole.phase
        lost = [before.bytes - after.bytes for before, after in zip(whole.shares, one.shares, strict=True)]
        assert all(size >= 0 for size in lost)
        assert whole.allocated - one.allocated == sum(lost)
        away = max(away, sum(lost))
    assert away <= hosted
    assert max(found, key=lambda one: one.allocated).worst
