"""Megatron-Core's layer-wise optimizer: who updates which parameters, and what a rank keeps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import HIDDEN, LLAMA, plan_of
from trainledger.answer.estimate import estimate, states_of
from trainledger.base.dims import Axis, Dim
from trainledger.ledger.mega_layerwise import dealt, packed
from trainledger.ledger.mega_states import Piece
from trainledger.model.build import model_of
from trainledger.model.counts import total
from trainledger.model.program import Role
from trainledger.plan.read import read_plan
from trainledger.plan.schema import Plan

RANKS, MODEL = 4, {**LLAMA, "vocab_size": 4096}


def muon(strategy: str, **options: Any) -> Plan:
    plan = plan_of(MODEL, parallel={"strategy": strategy, "dp": RANKS, "options": options})
    given = plan.model_dump(exclude_unset=True)
    return read_plan({**given, "optimizer": {"name": "muon", "grad_clip": 1.0}})


def pieces(*sizes: int) -> list[Piece]:
    return [Piece(f"p{size}", (Axis(Dim.ELEMENTS, size),), Role.MATRIX) for size in sizes]


def test_parameters_are_dealt_out_there_and_back_by_size() -> None:
    found = dealt(pieces(*range(10)), 4)
    assert [[one.size for one in share] for share in found] == [[0, 7, 8], [1, 6, 9], [2, 5], [3, 4]]


def test_the_largest_goes_to_the_rank_that_has_least() -> None:
    found = packed(pieces(7, 5, 4, 3, 1), 2)
    assert [sum(one.size for one in share) for share in found] == [10, 10]


def test_tables_and_norms_have_two_states_and_matrices_one() -> None:
    plan = muon("megatron-ddp")
    count, found = total(model_of(plan)), states_of(estimate(plan).ledger)
    tables = 2 * MODEL["vocab_size"] * HIDDEN
    assert found["optimizer_states"] == pytest.approx(4 * count + 4 * tables, rel=2e-3)
    assert found["master_weights"] == pytest.approx(4 * count, rel=2e-3)


@pytest.mark.parametrize("laid_out", [True, False])
def test_ranks_share_what_the_optimizer_keeps(laid_out: bool) -> None:
    plan = muon("megatron-distopt", use_layer_wise_param_layout=laid_out)
    whole = states_of(estimate(muon("megatron-ddp")).ledger)
    each = [states_of(estimate(plan, rank).ledger) for rank in range(RANKS)]
    for name in ("master_weights", "optimizer_states"):
        assert sum(one[name] for one in each) == pytest.approx(whole[name], rel=5e-3)
        assert states_of(estimate(plan).ledger)[name] >= max(one[name] for one in each) * 0.99
    assert each[0]["weights"] == pytest.approx(whole["weights"], rel=5e-3)
    assert each[0]["gradients"] == pytest.approx(whole["gradients"], rel=5e-3)


def test_dealt_out_ranks_differ_and_laid_out_ones_hardly() -> None:
    def spread(laid_out: bool) -> float:
        plan = muon("megatron-distopt", use_layer_wise_param_layout=laid_out)
        sizes = [states_of(estimate(plan, rank).ledger)["master_weights"] for rank in range(RANKS)]
        return max(sizes) / min(sizes)

    assert spread(True) < 1.1 < spread(False)
