"""Routers and experts on a tape: what is kept for backward, and what a frozen one keeps."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger import experts
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.model.program import ActKind, Experts, Role, Router, Weight

BATCH, SEQUENCE, HIDDEN, WIDTH, COUNT, TOP_K = 1, 64, 256, 512, 8, 2
H, E = Axis(Dim.HIDDEN, HIDDEN), Axis(Dim.EXPERTS, COUNT)
ROUTER = Weight("gate", (E, H), Role.ROUTER)
GATE_UP = Weight("gate_up", (E, Axis(Dim.FFN, 2 * WIDTH), H), Role.EXPERT)
DOWN = Weight("down", (E, H, Axis(Dim.FFN, WIDTH)), Role.EXPERT)
SLOTS = BATCH * SEQUENCE * TOP_K


def written(trained: bool, normalise: bool = True, upcast: bool = False) -> tuple[Tape, int]:
    tape = Tape()
    x = tape.inherit((Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, SEQUENCE), H), BF16, trained, "x")
    values = {weight: tape.outside(weight.dims, BF16, trained, weight) for weight in (ROUTER, GATE_UP, DOWN)}
    _, scores, chosen = experts.router(tape, Router(ROUTER, TOP_K, normalise, upcast), x, values[ROUTER])
    spec = Experts(TOP_K, GATE_UP, DOWN, ActKind.SILU)
    return tape, experts.experts(tape, spec, [x, scores, chosen], values.__getitem__)


def kept(tape: Tape) -> dict[str, int]:
    """Bytes of every storage that autograd keeps, by its primitive's name."""
    found = {tape.store[value] for prim in tape.prims for value in prim.saves} - {EXTERNAL}
    return {f"{at} {tape.storages[at].name}": tape.storages[at].size for at in found}


def test_the_result_is_a_hidden_state() -> None:
    for upcast in (True, False):
        tape, out = written(True, upcast=upcast)
        assert tape.dtype[out] == BF16
        assert elements(tape.dims[out]) == BATCH * SEQUENCE * HIDDEN


def test_what_is_kept() -> None:
    """Per slot: tokens, both projections, activation, gated, product; and the places, in int64."""
    tape, _ = written(True)
    large = sum(size for size in kept(tape).values() if size > SLOTS * 16)
    inner = 2 * SLOTS * (HIDDEN + 2 * WIDTH + WIDTH + WIDTH + HIDDEN)
    assert large == inner + 2 * BATCH * SEQUENCE * HIDDEN


def test_scores_that_stay_fp32_raise_the_product() -> None:
    tape, _ = written(True, upcast=True)
    by_name = {tape.storages[tape.store[prim.outs[0]]].name: tape.dtype[prim.outs[0]] for prim in tape.prims}
    assert next(dtype for name, dtype in by_name.items() if "weighed" in name) == FP32


@pytest.mark.parametrize("normalise", [True, False])
def test_a_frozen_layer_keeps_nothing(normalise: bool) -> None:
    tape, _ = written(False, normalise)
    assert kept(tape) == {}
    assert not any("before division" in storage.name for storage in tape.storages)
