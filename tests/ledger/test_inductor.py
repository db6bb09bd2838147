"""A compiled layer: what its kernels write, keep and make again."""

from __future__ import annotations

from tests.ledger.gated import INNER, TOKENS, WIDTH, gated_layer
from trainledger.ledger import aten
from trainledger.ledger.inductor import FUSED, fuse, needed_again
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

ROW, WIDE = 2 * TOKENS * WIDTH, 2 * TOKENS * INNER


def layer() -> tuple[Tape, int, int]:
    """x + down(silu(gate(norm(x))) * up(norm(x))): the tape, its input and its result."""
    tape, x, branch = gated_layer()
    out = aten.add(tape, x, branch)
    fuse(tape, out)
    return tape, x, out


def test_what_lies_between_products_is_never_written_out() -> None:
    tape, _, _ = layer()
    assert [prim.kind for prim in tape.prims] == [FUSED, "linear", "linear", FUSED, "linear", FUSED]


def test_products_keep_what_they_read_and_kernels_what_they_were_made_of() -> None:
    tape, x, out = layer()
    forward = run_forward(tape, frozenset({out, x}), saving=True)
    kept = sum(tape.storages[one].size for one in forward.held if one != EXTERNAL)
    assert kept == ROW + ROW + 3 * WIDE  # x, norm(x), gate, up, their product
    born = sum(tape.storages[event - 1].size for event in forward.events if event > 0)
    assert born == ROW + 3 * WIDE + ROW + ROW  # and the last product, and the sum


def test_backward_makes_again_only_what_it_reads() -> None:
    tape, _, _ = layer()
    gate, up, down = (at for at, prim in enumerate(tape.prims) if prim.kind == "linear")
    again = needed_again(tape, [gate, down])
    assert again == {0, gate, up, 3}  # not the last product, though it was to be kept, nor the sum
    assert needed_again(tape, range(len(tape.prims))) == again
