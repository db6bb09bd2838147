"""What LitGPT's norm and its LoRA of the fused layer keep, in bytes."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.ledger.nn import linear
from trainledger.ledger.rules_litgpt import NORMS, Call, fused, norm
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.operations import NormKind
from trainledger.model.weights import FusedLowRank, Weight

TOKENS, IN, OUT, RANK = 4096, 1024, 3072, 8


def held(tape: Tape, out: int) -> int:
    found = run_forward(tape, frozenset({out}), saving=True).held
    return sum(tape.storages[one].size for one in found if one != EXTERNAL)


@pytest.mark.parametrize("kind", NORMS)
def test_a_norm_keeps_its_input_in_fp32_and_a_number_of_each_token(kind: NormKind) -> None:
    tape = Tape()
    dims = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS), Axis(Dim.HIDDEN, IN))
    out = norm(tape, kind, tape.outside(dims, BF16, True), tape.outside(dims[-1:], BF16, False))
    assert held(tape, out) == pytest.approx(4 * TOKENS * (IN + 1), abs=4 * IN)


@pytest.mark.parametrize(("widths", "padded", "copied"), [((1024, 1024), True, 2048), ((1024, 1024, 1024), False, 0)])
def test_zeros_around_adapted_columns_keep_a_copy_of_them(widths: tuple[int, ...], padded: bool, copied: int) -> None:
    """A dropped-out input with its mask, what `down` makes, and, where columns are copied into zeros, these."""
    tape = Tape()
    tokens = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS))
    ranks = (Axis(Dim.RANK, RANK * len(widths)), Axis(Dim.HIDDEN, IN))
    columns = (Axis(Dim.ROWS, sum(widths)), Axis(Dim.RANK, RANK))
    x = tape.outside((*tokens, ranks[1]), BF16, True)
    weight = tape.outside((Axis(Dim.ROWS, OUT), ranks[1]), BF16, False)
    dims = (*tokens, Axis(Dim.ROWS, OUT))
    low = FusedLowRank(Weight("A", ranks), Weight("B", columns), widths, padded, 0.1)
    values = tape.outside(ranks, BF16, True), tape.outside(columns, BF16, True)
    out = fused(tape, lambda value: linear(tape, value, dims, weight), Call(x, dims, low, *values, 0.1))
    assert held(tape, out) == TOKENS * (2 * IN + IN + 2 * RANK * len(widths) + 2 * copied)
