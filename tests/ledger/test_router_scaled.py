"""Gemma 4's router: dtypes and what is saved."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64
from trainledger.ledger.router_scaled import best, weighted
from trainledger.ledger.tape import Tape
from trainledger.model.operations_scaled import ScaledBest
from trainledger.model.program import Weight

TOKENS, EXPERTS, HIDDEN = Axis(Dim.TOKENS, 32), Axis(Dim.EXPERTS, 8), Axis(Dim.HIDDEN, 16)


def test_scores_are_fp32_and_their_factors_the_models() -> None:
    tape, own = Tape(), Weight("router.per_expert_scale", (EXPERTS,))
    logits = tape.fresh((TOKENS, EXPERTS), BF16, True)
    probs, scores, chosen = best(tape, ScaledBest(2, own), logits, tape.outside((EXPERTS,), BF16, True, own))
    assert [tape.dtype[one] for one in (probs, scores, chosen)] == [FP32, FP32, INT64]
    assert [axis.size for axis in tape.dims[scores]] == [32, 2]
    factors, last = tape.prims[-2:]
    assert (factors.kind, last.kind) == ("index", "mul")
    assert tape.dtype[factors.outs[0]] == BF16
    assert set(last.saves) == set(last.ins)


def test_the_vector_is_trained_and_the_number_is_not() -> None:
    tape, weight = Tape(), Weight("router.scale", (HIDDEN,))
    x = tape.fresh((TOKENS, HIDDEN), BF16, True)
    weighted(tape, x, tape.outside((HIDDEN,), BF16, True, weight))
    assert [len(prim.saves) for prim in tape.prims] == [2, 0]
