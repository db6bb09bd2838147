"""What is kept of a compiled layer: operands of products, and nothing that elementwise functions make again."""

from __future__ import annotations

from tests.ledger.gated import INNER, TOKENS, WIDTH, gated_layer
from trainledger.ledger.compiled import compile_layer
from trainledger.ledger.tape import EXTERNAL
from trainledger.ledger.walk import run_forward


def gated(compiled: bool) -> int:
    """Bytes kept of a normed, gated feed-forward."""
    tape, x, out = gated_layer()
    if compiled:
        compile_layer(tape)
    held = run_forward(tape, frozenset({out, x}), saving=True).held
    return sum(tape.storages[one].size for one in held if one != EXTERNAL)


def test_fp32_casts_and_the_activation_are_made_again() -> None:
    row = 4 * TOKENS
    eager = 4 * WIDTH + 2 * WIDTH + 2 * WIDTH + 4 * 2 * INNER
    assert gated(False) == TOKENS * eager + row
    assert gated(True) == TOKENS * (2 * WIDTH + 2 * WIDTH + 3 * 2 * INNER) + row
