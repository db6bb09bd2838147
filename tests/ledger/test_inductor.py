"""A compiled layer: what its kernels write, keep and make again."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger import aten, nn
from trainledger.ledger.inductor import FUSED, fuse, needed_again
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

TOKENS, WIDTH, INNER = 1024, 256, 512
ROW, WIDE = 2 * TOKENS * WIDTH, 2 * TOKENS * INNER


def layer() -> tuple[Tape, int, int]:
    """x + down(silu(gate(norm(x))) * up(norm(x))): the tape, its input and its result."""
    tape = Tape()
    tokens, width, inner = Axis(Dim.TOKENS, TOKENS), Axis(Dim.HIDDEN, WIDTH), Axis(Dim.FFN, INNER)
    x = tape.inherit((tokens, width), BF16, True, "input")
    scale = tape.outside((width,), BF16, True)
    tape.leaf[scale] = None  # type: ignore[assignment]
    gate, up = (tape.outside((inner, width), BF16, True) for _ in range(2))
    down = tape.outside((width, inner), BF16, True)
    high = aten.to(tape, x, FP32)
    inv = aten.rsqrt(tape, aten.shift(tape, aten.mean(tape, aten.square(tape, high))))
    normed = aten.mul(tape, scale, aten.to(tape, aten.mul(tape, high, inv), BF16))
    act = aten.unary(tape, "silu", nn.linear(tape, normed, (tokens, inner), gate), saves_in=True)
    product = aten.mul(tape, act, nn.linear(tape, normed, (tokens, inner), up))
    out = aten.add(tape, x, nn.linear(tape, product, (tokens, width), down))
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
