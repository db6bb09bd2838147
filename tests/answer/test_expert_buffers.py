"""DeepEP's buffers against its own formulas, written out; and when a plan has none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_moe import LLAMA, routed
from trainledger.answer.bands import Outside
from trainledger.answer.expert_buffers import between, expert_buffers, within
from trainledger.facts.deepep import BUFFERS
from trainledger.ledger.rank import Ledger
from trainledger.plan.schema import Plan

MIB = 2**20
HIDDEN = 7168
ROWS = {row.ranks: row for row in BUFFERS.rows}


def up(size: int, unit: int = 128) -> int:
    return -(-size // unit) * unit


@pytest.mark.parametrize(("ranks", "tokens"), [(2, 256), (8, 256), (32, 288), (128, 560)])
def test_within_a_node(ranks: int, tokens: int) -> None:
    token = 2 * HIDDEN + 8 + 128 * 8 + 128 * 4 + 128 * 4
    size = 10 * min(ranks, 8) * ((2 * max(ranks // 8, 1) + 3) * 4 + tokens * token)
    assert within(ROWS[ranks], HIDDEN) == up(size) + 32 * MIB


@pytest.mark.parametrize(("ranks", "kept"), [(16, 140), (64, 140), (144, 132)])
def test_between_nodes(ranks: int, kept: int) -> None:
    token = 2 * HIDDEN + 8 + 128 * 8 + 128 * 4 + 128 * 4 + 16
    size = 10 * (ranks // 8) * ((8 * 2 + 2) * 2 * 4 + kept * token * 2) + MIB
    assert between(ROWS[ranks], HIDDEN) == up(size)
    assert between(ROWS[8], HIDDEN) == 0


def plan(ep: int, **options: Any) -> Plan:
    given = {"moe_token_dispatcher_type": "flex", **options}
    return routed(LLAMA, given, parallel={"ep": ep, "dp": ep}, model={"num_experts": 64})


def test_a_plan_whose_tokens_go_through_them() -> None:
    (near,) = expert_buffers(plan(8))
    assert near.low == near.expected == near.high
    (far,) = expert_buffers(plan(16))
    assert far.low < far.expected < far.high
    none = Ledger((), (), ())
    by_deepep, by_nccl = (
        Outside.of("sm90", one, none).parts for one in (plan(8), plan(8, moe_token_dispatcher_type="alltoall"))
    )
    assert near in by_deepep
    assert near not in by_nccl


def test_a_plan_without_them() -> None:
    assert expert_buffers(plan(8, moe_flex_dispatcher_backend="hybridep")) == ()
    assert expert_buffers(plan(8, moe_token_dispatcher_type="alltoall")) == ()
    assert expert_buffers(plan(1)) == ()
