"""Liger's loop over chunks: what lives at once, and that a chunk's logits stay until the next ones are there."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16
from trainledger.facts.losses import FUSED_LINEAR, of_release
from trainledger.ledger.fused_chunks import Chunks
from trainledger.ledger.tape import Tape

ROWS, WIDTH, WORDS = 512, 1024, 32768
LOGITS: Dims = (Axis(Dim.TOKENS, ROWS), Axis(Dim.VOCAB, WORDS))
HIDDEN: Dims = (Axis(Dim.TOKENS, ROWS), Axis(Dim.HIDDEN, WIDTH))
HEAD: Dims = (Axis(Dim.VOCAB, WORDS), Axis(Dim.HIDDEN, WIDTH))
LOW, SUMS = ROWS * WORDS * 2, WORDS * WIDTH * 2  # bytes of a chunk's logits and of the head in bf16


def _peaks(release: str, count: int, trained: bool = True) -> list[int]:
    """Bytes that live while each primitive runs, of the loop alone."""
    tape = Tape()
    weight = tape.outside(HEAD, BF16, True)
    hidden = tape.outside(HIDDEN, BF16, True)
    row = of_release(FUSED_LINEAR, release)
    Chunks(tape, row, (hidden, weight), LOGITS, HIDDEN, HEAD, BF16, casts=False, trained=trained).run(count)
    own = [(prim.outs[0], at) for at, prim in enumerate(tape.prims)]
    size = {value: tape.storages[tape.store[value]].size for value, _ in own}
    return [sum(size[value] for value, born in own if born <= at <= tape.ends[value]) for at in range(len(tape.prims))]


@pytest.mark.parametrize(
    ("release", "one", "several"),
    [
        ("0.8.0", LOW + SUMS + 2 * SUMS, LOW + SUMS + 2 * SUMS),  # the product, and its copy in fp32
        ("0.5.10", LOW + ROWS * WIDTH * 2, 2 * LOW),  # two chunks' logits
        ("0.5.0", 2 * LOW + ROWS * WIDTH * 2, 3 * LOW),  # and the gradient of those before
        ("0.3.1", 3 * LOW, 4 * LOW),  # fp32 logits, beside those that they come from and the gradient of before
    ],
)
def test_what_lives_at_once(release: str, one: int, several: int) -> None:
    assert max(_peaks(release, 1)) == one
    assert max(_peaks(release, 2)) == max(_peaks(release, 100)) == several


def test_a_frozen_head_has_no_gradient() -> None:
    assert max(_peaks("0.8.0", 3, trained=False)) == 2 * LOW


def test_the_order_is_that_of_the_code() -> None:
    """Logits, the gradient of the hidden states, the head's product, its copy in fp32; twice."""
    first = [LOW, LOW + ROWS * WIDTH * 2, LOW + SUMS, LOW + 3 * SUMS]
    assert _peaks("0.8.0", 2) == [*first, 2 * LOW, *first[1:]]
