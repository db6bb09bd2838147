"""Tokens sent once to each rank (flex), and shared experts computed while they travel."""

from __future__ import annotations

import pytest

from tests.ledger.test_mega_moe import TOKENS, kept, routed
from tests.ledger.test_megatron import HIDDEN
from trainledger.answer.estimate import estimate
from trainledger.ledger.mega_routing import Routing
from trainledger.lines.parts import Parts

SENT = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
FLEX = {**SENT, "moe_token_dispatcher_type": "flex"}
TE = {"kernels": ["te"], "attention": "fused", "options": {}}


@pytest.mark.parametrize(
    ("experts", "top_k", "ranks", "reached"),
    [(8, 1, 8, 1), (8, 8, 8, 8), (8, 2, 4, 4 * (1 - 15 / 28)), (4, 2, 2, 2 * (1 - 1 / 6))],
)
def test_a_rank_is_reached_by_tokens_that_take_any_of_its_experts(
    experts: int, top_k: int, ranks: int, reached: float
) -> None:
    found = Routing("flex").reached(8400, experts, top_k, Parts(ep=ranks))
    assert found == pytest.approx(8400 * reached, abs=1)


def test_tokens_sent_once_are_put_in_order_of_experts_as_often_as_they_are_taken() -> None:
    sent, once = (kept(routed(options=options, parallel={"ep": 4}, stack=TE)) for options in (SENT, FLEX))
    assert once == pytest.approx(sent, rel=0.05)


def test_overlapped_shared_experts_keep_the_whole_sequence() -> None:
    shared = {"shared_expert_intermediate_size": 1024}
    spread = {"tp": 2, "sp": True, "dp": 2, "ep": 2}
    plain, over = (
        kept(routed(model=shared, parallel=spread, stack=TE, options={**SENT, "moe_shared_expert_overlap": on}))
        for on in (False, True)
    )
    assert over - plain == pytest.approx(2 * TOKENS * HIDDEN, rel=0.01)


@pytest.mark.parametrize(
    "options", [FLEX, {**FLEX, "moe_permute_fusion": True}, {**SENT, "moe_shared_expert_overlap": True}]
)
def test_births_match_deaths(options: dict[str, object]) -> None:
    shared = {"shared_expert_intermediate_size": 1024}
    plan = routed(model=shared, parallel={"ep": 2}, options=options, stack=TE)
    assert estimate(plan).peak.allocated.expected > 0
