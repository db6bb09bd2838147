"""Attention with sinks, its router and its experts on a tape: what is kept, and how many rows biases have."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64
from trainledger.ledger import sinks
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.model.program import BestRouter, ClampedExperts, Role, SinkAttention, Weight

BATCH, SEQUENCE, HEADS, HEAD, HIDDEN, WIDTH, COUNT, TOP_K = 2, 32, 4, 16, 64, 96, 8, 2
TOKENS = (Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, SEQUENCE))
H, E, WIDE = Axis(Dim.HIDDEN, HIDDEN), Axis(Dim.EXPERTS, COUNT), Axis(Dim.FFN, WIDTH + WIDTH)
SHAPES = ((E, H, WIDE), (E, WIDE), (E, Axis(Dim.FFN, WIDTH), H), (E, H))


def kept(tape: Tape) -> list[int]:
    """Bytes of every storage that autograd keeps."""
    found = {tape.store[value] for prim in tape.prims for value in prim.saves} - {EXTERNAL}
    return sorted(tape.storages[at].size for at in found)


def test_one_more_score_for_every_query() -> None:
    tape = Tape()
    dims = (*TOKENS, Axis(Dim.HEADS, HEADS), Axis(Dim.HEAD_DIM, HEAD))
    q, k, v = (tape.inherit(dims, BF16, True, name) for name in "qkv")
    weight = Weight("sinks", (Axis(Dim.HEADS, HEADS),), Role.BIAS)
    spec = SinkAttention(HEADS, HEADS, HEAD, head_first=True, sinks=weight)
    out, weights = sinks.eager(tape, (q, k, v), spec, None, tape.outside(weight.dims, BF16, True, weight))
    assert tape.dims[out] == dims
    assert tape.dims[weights][-1].size == SEQUENCE
    assert max(kept(tape)) == 2 * BATCH * HEADS * SEQUENCE * (SEQUENCE + 1)  # the softmax, the sink's column with it


def test_the_router_keeps_its_input_and_its_choice() -> None:
    tape = Tape()
    x = tape.inherit((*TOKENS, H), BF16, True, "x")
    of_experts, shift = Weight("w", (E, H), Role.ROUTER), Weight("b", (E,), Role.ROUTER)
    weight, bias = (tape.outside(one.dims, BF16, True, one) for one in (of_experts, shift))
    _, scores, chosen = sinks.best_router(tape, BestRouter(of_experts, shift, TOP_K), x, weight, bias)
    assert (tape.dtype[scores], tape.dtype[chosen]) == (BF16, INT64)
    slots = BATCH * SEQUENCE * TOP_K
    assert kept(tape) == sorted([2 * BATCH * SEQUENCE * HIDDEN, 8 * slots, max(2 * slots, 512)])


def test_a_router_in_fp32_gives_scores_in_the_hidden_states_dtype() -> None:
    tape = Tape()
    x = tape.inherit((*TOKENS, H), BF16, True, "x")
    of_experts = Weight("w", (E, H), Role.ROUTER)
    weight = tape.outside(of_experts.dims, BF16, True, of_experts)
    logits, scores, _ = sinks.best_router(tape, BestRouter(of_experts, None, TOP_K, high=True), x, weight, None)
    assert (tape.dtype[logits], tape.dtype[scores]) == (FP32, BF16)


@pytest.mark.parametrize("trained", [True, False])
def test_experts_leave_a_hidden_state(trained: bool) -> None:
    tape = Tape()
    x = tape.inherit((*TOKENS, H), BF16, trained, "x")
    slots = (*TOKENS, Axis(Dim.SLOTS, TOP_K))
    scores, chosen = tape.inherit(slots, BF16, trained, "scores"), tape.inherit(slots, INT64, False, "chosen")
    weights = [Weight(f"{at}", dims) for at, dims in enumerate(SHAPES)]
    values = {weight: tape.outside(weight.dims, BF16, trained, weight) for weight in weights}
    out = sinks.clamped(tape, ClampedExperts(TOP_K, *weights), [x, scores, chosen], values.__getitem__)
    assert (tape.dims[out], tape.dtype[out]) == (tape.dims[x], BF16)
    assert bool(kept(tape)) is trained
    biases = [
        tape.dims[prim.outs[0]][-1].size
        for prim in tape.prims
        if prim.kind == "index" and prim.ins[0] in (values[weights[1]], values[weights[3]])
    ]
    assert biases == [2 * WIDTH, HIDDEN]
