"""Linear layers with factors in 8 bits: what is kept, and what a cast makes on the way."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP8
from trainledger.ledger import aten, nn
from trainledger.ledger.float8 import Layer, linear
from trainledger.ledger.inductor import fuse
from trainledger.ledger.tape import EXTERNAL, SCALED, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.operations import Low, Scales

TOKENS, WIDTH, INNER = 1024, 256, 512
IN, WEIGHT = TOKENS * WIDTH, INNER * WIDTH


def ran(low: Low, compiled: bool) -> tuple[Tape, int, int]:
    """A layer of a doubled input: the tape, bytes kept, bytes of absolute values born."""
    tape = Tape()
    tokens, width = Axis(Dim.TOKENS, TOKENS), Axis(Dim.HIDDEN, WIDTH)
    x = tape.inherit((tokens, width), BF16, True, "input")
    weight = tape.outside((Axis(Dim.FFN, INNER), width), BF16, True)
    out = linear(tape, Layer(x, weight, (tokens, Axis(Dim.FFN, INNER)), low, compiled))
    forward = run_forward(tape, frozenset({out, x}), saving=True)
    kept = sum(tape.storages[one].size for one in forward.held if one != EXTERNAL)
    births = [tape.storages[event - 1] for event in forward.events if event > 0]
    return tape, kept, sum(one.size for one in births if "absolute" in one.name)


def low(gathered: bool = False, again: bool = False, early: bool = False) -> Low:
    return Low(FP8, Scales.TENSOR, gathered, again, early, kernels=early)


@pytest.mark.parametrize(
    "how, kept",
    [
        (low(), 2 * IN + WEIGHT),  # the input as it came, and the cast weight
        (low(again=True), 2 * IN),
        (low(gathered=True), 2 * IN),
        (low(again=True, early=True), IN),
    ],
)
def test_what_is_kept(how: Low, kept: int) -> None:
    assert ran(how, True)[1] == kept
    assert ran(how, False)[1] == kept


def test_eager_casts_make_absolute_values_of_both_factors() -> None:
    assert ran(low(), True)[2] == 0
    assert ran(low(), False)[2] == 2 * IN + 2 * WEIGHT
    assert ran(low(gathered=True), False)[2] == 2 * IN


def test_compiled_code_makes_the_input_again_from_what_it_was_made_of() -> None:
    tape = Tape()
    tokens, width = Axis(Dim.TOKENS, TOKENS), Axis(Dim.HIDDEN, WIDTH)
    x = tape.inherit((tokens, width), BF16, True, "input")
    act = aten.unary(tape, "silu", x, saves_in=True)
    weight = tape.outside((Axis(Dim.FFN, INNER), width), BF16, True)
    out = linear(tape, Layer(act, weight, (tokens, Axis(Dim.FFN, INNER)), low(again=True), True))
    fuse(tape, out)
    assert [prim.saves for prim in tape.prims if prim.kind == SCALED] == [(x, weight)]


def test_what_a_product_makes_its_input_of_lives_until_it_ran() -> None:
    tape = Tape()
    tokens, width = Axis(Dim.TOKENS, TOKENS), Axis(Dim.HIDDEN, WIDTH)
    x = tape.inherit((tokens, width), BF16, True, "input")
    first = tape.outside((Axis(Dim.FFN, INNER), width), BF16, True)
    made = nn.linear(tape, x, (tokens, Axis(Dim.FFN, INNER)), first)
    copied = aten.copy(tape, made)
    wide = tape.outside((width, Axis(Dim.FFN, INNER)), BF16, True)
    out = linear(tape, Layer(copied, wide, (tokens, width), low(again=True), True))
    fuse(tape, out)
    forward = run_forward(tape, frozenset({out, x}), saving=True)
    died = {-event - 1 for event in forward.events if event < 0}
    assert tape.store[made] in forward.held
    assert tape.store[made] not in died
