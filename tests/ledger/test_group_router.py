"""Routers in fp32 that choose among groups: what backward needs of them, and what dies with their names."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, BOOL, FP32, INT64
from trainledger.ledger import group_router
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.program import Buffer, GroupRouter, Role, Weight

BATCH, SEQUENCE, HIDDEN, COUNT, TOP_K = 2, 64, 128, 16, 4
TOKENS = BATCH * SEQUENCE
WEIGHT = Weight("gate.weight", (Axis(Dim.EXPERTS, COUNT), Axis(Dim.HIDDEN, HIDDEN)), Role.ROUTER, dtype=FP32)
BIAS = Buffer("gate.bias", WEIGHT.dims[:1])
FORMS = {
    "all": GroupRouter(WEIGHT, TOP_K, 0, 0, False),
    "groups": GroupRouter(WEIGHT, TOP_K, 4, 2, False),
    "corrected": GroupRouter(WEIGHT, TOP_K, 4, 2, False, BIAS),
    "normalised": GroupRouter(WEIGHT, TOP_K, 4, 2, True, BIAS),
}


def written(form: str, trained: bool = True) -> tuple[Tape, list[int]]:
    tape = Tape()
    x = tape.inherit((Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, SEQUENCE), WEIGHT.dims[1]), BF16, trained, "x")
    weight = tape.outside(WEIGHT.dims, FP32, trained, WEIGHT)
    return tape, group_router.router(tape, FORMS[form], x, weight)


@pytest.mark.parametrize("form", FORMS)
def test_scores_stay_fp32(form: str) -> None:
    tape, (logits, scores, chosen) = written(form)
    assert [tape.dtype[value] for value in (logits, scores, chosen)] == [FP32, FP32, INT64]
    assert tape.dims[scores] == tape.dims[chosen]
    assert tape.dims[scores][-1].size == TOP_K


@pytest.mark.parametrize(
    ("form", "small"),
    [("all", 0), ("groups", TOKENS * COUNT), ("corrected", 0), ("normalised", 4 * TOKENS * (TOP_K + 1))],
)
def test_what_is_kept(form: str, small: int) -> None:
    """The state in fp32, the scores of all experts, the chosen ones' numbers; a mask, or what a division reads."""
    tape, outs = written(form)
    forward = run_forward(tape, frozenset(outs), True)
    found = sum(tape.storages[storage].size for storage in forward.held)
    assert found == 4 * TOKENS * HIDDEN + 4 * TOKENS * COUNT + 8 * TOKENS * TOP_K + small


@pytest.mark.parametrize("form", FORMS)
def test_what_only_the_choice_reads_is_gone(form: str) -> None:
    tape, outs = written(form)
    forward = run_forward(tape, frozenset(outs), True)
    alive = {event - 1 for event in forward.events if event > 0 and -event not in forward.events}
    assert alive == set(forward.held) | {tape.store[value] for value in outs}


@pytest.mark.parametrize("form", FORMS)
def test_a_frozen_router_keeps_nothing(form: str) -> None:
    tape, _ = written(form, trained=False)
    assert {tape.store[value] for prim in tape.prims for value in prim.saves} <= {EXTERNAL}


def test_a_mask_is_of_bools() -> None:
    tape, _ = written("corrected")
    masks = [prim.outs[0] for prim in tape.prims if prim.kind == "not"]
    assert [tape.dtype[value] for value in masks] == [BOOL]
