"""Blocks that wait for a communicator's stream: a ring's buffers, for as many layers as the host is ahead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_rules_te import HEAD, KV_HEADS, LLAMA, te
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import amounts
from trainledger.answer.waiting import waiting


def ring(layers: int, cp: int = 4, **options: Any) -> Estimate:
    plan = te({**LLAMA, "num_hidden_layers": layers}, parallel={"cp": cp, "options": options})
    return estimate(plan)


@pytest.mark.parametrize(("layers", "cp", "ahead"), [(2, 4, 2), (40, 4, 31), (40, 8, 19)])
def test_layers_that_the_host_is_ahead_hold_what_their_rings_exchanged(layers: int, cp: int, ahead: int) -> None:
    answer = ring(layers, cp)
    plan, late = answer.plan, waiting(answer.plan, answer.ledger)
    tokens = plan.batch.micro_batch * plan.batch.sequence // cp
    pair = 2 * 2 * tokens * KV_HEADS * HEAD  # keys and values in 16 bits
    assert late is not None
    assert (late.low, late.expected, late.high) == (0, *(2 * ((cp - 1) * pair * ahead,)))


def test_they_are_active_and_reserved_but_not_allocated() -> None:
    answer = ring(2)
    late, peak = waiting(answer.plan, answer.ledger), answer.peak
    assert late is not None
    assert peak.active.expected - peak.allocated.expected == late.expected
    assert peak.active.low == peak.allocated.low
    shown = {one.name: one for one in amounts(answer)}
    assert "none here" not in shown["active"].why
    for name in ("active", "reserved"):
        assert "assumed" in shown[name].basis
        assert str(late.source) in shown[name].source


@pytest.mark.parametrize("way", ["all_gather", "a2a"])
def test_collectives_record_no_stream(way: str) -> None:
    answer = ring(2, cp_comm_type=way)
    assert waiting(answer.plan, answer.ledger) is None
    assert answer.peak.active == answer.peak.allocated
    assert "none here" in {one.name: one for one in amounts(answer)}["active"].why
