"""Megatron-Core's layer-wise optimizer: who updates which parameters, and what a rank keeps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import HIDDEN, LLAMA, plan_of
from trainledger.answer.estimate import estimate, states_of
from trainledger.answer.layout import layout
from trainledger.base.dims import Axis, Dim
from trainledger.ledger.mega_buffers import laid_out
from trainledger.ledger.mega_layerwise import dealt
from trainledger.ledger.mega_states import Piece
from trainledger.model.build import model_of
from trainledger.model.counts import total
from trainledger.model.program import Role
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve
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


def test_buffers_are_laid_out_since_0_18_unless_the_plan_says_otherwise() -> None:
    def told(release: str, **options: Any) -> bool:
        plan = muon("megatron-distopt", **options)
        given = plan.model_dump(exclude_unset=True)
        given["stack"] = {**given["stack"], "versions": {"megatron-core": release}}
        return laid_out(read_plan(given))

    assert told("0.18.0")
    assert not told("0.17.1")
    assert not told("0.18.0", use_layer_wise_param_layout=False)


def test_layout_says_whose_matrices_a_rank_updates() -> None:
    plan = resolve(muon("megatron-distopt"))[0]
    found = [layout(plan, rank) for rank in range(RANKS)]
    whole = found[0].containers[-1].name
    assert whole.endswith("whole parameters")
    for same in zip(*(one.entries for one in found), strict=True):
        if same[0].container == whole:
            assert [one.held.within for one in same if one.held] == [(0, same[0].elements)]
    assert not any("embedding" in one.name or "norm" in one.name for one in found[0].entries if one.container == whole)
