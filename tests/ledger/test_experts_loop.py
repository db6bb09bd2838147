"""Experts that run one after the other: what they keep, and that no product is larger than one expert's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64
from trainledger.ledger.experts_loop import experts, looped, rows_of
from trainledger.ledger.nn import flat_linear
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.program import ActKind, Experts, Looped, Role, Weight

TOKENS, HIDDEN, WIDTH, EXPERTS, TOP = 1024, 256, 512, 8, 2
ROWS = TOKENS * TOP // EXPERTS


def made(grad: bool) -> tuple[Tape, int, dict[int, int], list[int]]:
    tape = Tape(None)
    batch, tokens = Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS)
    hidden, slots = Axis(Dim.HIDDEN, HIDDEN), Axis(Dim.SLOTS, TOP)
    count = Axis(Dim.EXPERTS, EXPERTS)
    up = Weight("gate_up", (count, Axis(Dim.FFN, 2 * WIDTH), hidden), Role.EXPERT)
    down = Weight("down", (count, hidden, Axis(Dim.FFN, WIDTH)), Role.EXPERT)
    x = tape.outside((batch, tokens, hidden), BF16, grad)
    scores = tape.outside((batch, tokens, slots), FP32, grad)
    chosen = tape.outside((batch, tokens, slots), INT64, False)
    out = experts(tape, Experts(TOP, up, down, ActKind.SILU), [x, scores, chosen])
    forward = run_forward(tape, frozenset({out}), saving=True)
    return tape, out, forward.held, forward.events


def test_frozen_experts_keep_their_activations_and_places() -> None:
    """Of every row: gate, act and up of an expert's width, its result before and after its score, that, two places."""
    tape, _, held, _ = made(True)
    size = sum(tape.storages[one].size for one in held if one != EXTERNAL)
    assert size == EXPERTS * ROWS * (3 * 2 * WIDTH + 2 * 2 * HIDDEN + 2 + 2 * 8)


def test_without_gradients_nothing_is_kept() -> None:
    assert not made(False)[2]


def test_no_tensor_is_wider_than_one_experts() -> None:
    tape, _, _, events = made(True)
    largest = max(tape.storages[event - 1].size for event in events if event > 0)
    assert largest <= max(2 * TOKENS * HIDDEN, 2 * ROWS * WIDTH)


def trained(load: float, finds: bool = False) -> tuple[Tape, dict[int, int], list[int]]:
    tape = Tape(None)
    batch, tokens = Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS)
    hidden, inner, slots = Axis(Dim.HIDDEN, HIDDEN), Axis(Dim.FFN, WIDTH), Axis(Dim.SLOTS, TOP)
    weights = [
        tuple(Weight(f"{at}.{name}", dims, Role.EXPERT) for name, dims in (
            ("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))
        ))
        for at in range(EXPERTS)
    ]  # fmt: skip
    x = tape.outside((batch, tokens, hidden), BF16, True)
    scores = tape.outside((batch, tokens, slots), BF16, True)
    chosen = tape.outside((batch, tokens, slots), INT64, False)

    def linear(weight: Weight, x: int, out: Axis) -> int:
        return flat_linear(tape, x, (tape.dims[x][0], out), tape.outside(weight.dims, BF16, True, weight))

    spec = Looped(TOP, tuple((one[0], one[1], one[2]) for one in weights), ActKind.SILU, load, finds)
    out, kept = looped(tape, spec, [x, scores, chosen], linear)
    tape.end(kept)
    forward = run_forward(tape, frozenset({out}), saving=True)
    return tape, forward.held, forward.events


def largest(tape: Tape, events: list[int]) -> int:
    """Bytes at the fullest instant."""
    now = most = 0
    for event in events:
        size = tape.storages[abs(event) - 1].size
        now += size if event > 0 else -size
        most = max(most, now)
    return most


def test_trained_experts_keep_their_rows_too() -> None:
    """As frozen ones, and what their products read: a row of hidden states, and one of gated ones."""
    tape, held, _ = trained(1.0)
    size = sum(tape.storages[one].size for one in held if one != EXTERNAL)
    assert size == EXPERTS * ROWS * (4 * 2 * WIDTH + 3 * 2 * HIDDEN + 2 + 2 * 8)


def test_an_uneven_load_moves_no_saved_row_but_the_work() -> None:
    even, uneven = trained(1.0), trained(4.0)
    kept = [sum(tape.storages[one].size for one in held if one != EXTERNAL) for tape, held, _ in (even, uneven)]
    assert abs(kept[1] / kept[0] - 1) < 0.01  # each tensor is rounded
    assert largest(uneven[0], uneven[2]) >= largest(even[0], even[2])


def test_experts_that_have_tokens_are_looked_for_once() -> None:
    kinds = [[prim.kind for prim in trained(1.0, finds)[0].prims] for finds in (False, True)]
    assert [one.count("greater") for one in kinds] == [0, 1]
    assert [one.count("nonzero") for one in kinds] == [EXPERTS, EXPERTS + 1]


@given(st.integers(1, 4), st.integers(1, 512), st.integers(4, 64), st.sampled_from([0, 1, 1.5, 4, 100]))
def test_rows_cover_every_choice(top: int, tokens: int, count: int, load: float) -> None:
    rows = rows_of(top * tokens, tokens, count, load)
    assert len(rows) == count
    assert sum(rows) >= top * tokens
    assert sum(rows) < top * tokens + 2 * count
    assert max(rows) <= max(tokens, 1)
    assert rows[-1] == max(rows) or load == 1
    if not load:
        assert rows[-1] == tokens
