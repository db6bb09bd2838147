"""Experts that run one after the other: what they keep, and that no product is larger than one expert's."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64
from trainledger.ledger.experts_loop import experts
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.program import ActKind, Experts, Role, Weight

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
    """Of every row: gate, act and up of an expert's width, its result, its score and its two places."""
    tape, _, held, _ = made(True)
    size = sum(tape.storages[one].size for one in held if one != EXTERNAL)
    assert size == EXPERTS * ROWS * (3 * 2 * WIDTH + 2 * HIDDEN + 2 + 2 * 8)


def test_without_gradients_nothing_is_kept() -> None:
    assert not made(False)[2]


def test_no_tensor_is_wider_than_one_experts() -> None:
    tape, _, _, events = made(True)
    largest = max(tape.storages[event - 1].size for event in events if event > 0)
    assert largest <= max(2 * TOKENS * HIDDEN, 2 * ROWS * WIDTH)
