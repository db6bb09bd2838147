"""Which micro-batches a step has, and what a rank stores."""

from __future__ import annotations

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate, states_of
from trainledger.ledger.layout import Schedule

FIRST, LATER = False, True


@pytest.mark.parametrize(
    ("schedule", "later", "flags"),
    [
        (Schedule(1, False, False), LATER, [(True, True)]),
        (Schedule(2, False, False), FIRST, [(True, True), (False, True)]),
        (Schedule(2, True, False), FIRST, [(True, False), (True, True)]),
        (Schedule(3, False, False), FIRST, [(True, True), (False, True), (False, True)]),
        (Schedule(8, True, False), FIRST, [(True, False), (True, False), (True, True)]),
        (Schedule(1, True, False), FIRST, [(True, True)]),
        (Schedule(1, False, True), LATER, [(False, True)]),
        (Schedule(2, False, True), LATER, [(False, True), (False, True)]),
    ],
)
def test_different_micro_batches_of_a_step(schedule: Schedule, later: bool, flags: list[tuple[bool, bool]]) -> None:
    assert schedule.flags(later) == flags


def test_shards_are_padded_and_states_are_not() -> None:
    """257 words over 8 ranks are 33 rows each on all of them; the optimizer of the last updates 26."""
    model = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 2, "vocab_size": 257, "n_positions": 64}
    plan = plan_of(model, batch={"sequence": 64}, parallel={"strategy": "fsdp2", "dp": 8})
    held = {}
    for rank in (0, 7):
        ledger = estimate(plan, rank).ledger
        held[rank] = states_of(ledger)
        line = next(one for one in ledger.lines if one.account == "weights" and "wte" in one.name)
        assert (line.dims[0].size, line.shards) == (33, 8)
    assert held[0]["weights"] == held[7]["weights"]
    assert held[0]["optimizer_states"] > held[7]["optimizer_states"]
