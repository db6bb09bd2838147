"""Memory that lives only inside kernels: sorted ids of an embedding's backward, sums over tokens."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE, Multiprocessors
from trainledger.ledger import aten, nn, rules_torchtitan
from trainledger.ledger.engine import Backward
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward

WIDTH, ENTRIES = 256, 5000


def backward(tape: Tape, out: int) -> dict[str, int]:
    """Sizes of what is born in backward, by the last part of its name; all but gradients dies again."""
    forward = run_forward(tape, frozenset({out}), saving=True)
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(out, "incoming")
    back.run(0, len(tape.prims))
    events = [(event > 0, tape.storages[abs(event) - 1]) for event in back.events]
    inside = [(born, storage) for born, storage in events if ": " in storage.name]
    living = [1 if born else -1 for born, storage in inside if "gradient of" not in storage.name]
    assert sum(living) == 0
    return {storage.name.split(": ")[-1]: storage.size for born, storage in inside if born}


def embedded(tokens: int) -> dict[str, int]:
    tape = Tape()
    table = tape.outside((Axis(Dim.VOCAB, ENTRIES), Axis(Dim.HIDDEN, WIDTH)), BF16, True)
    ids = tape.outside((Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, tokens)), INT64, False)
    return backward(tape, nn.embedding(tape, ids, table, (Axis(Dim.SEQUENCE, tokens), Axis(Dim.HIDDEN, WIDTH))))


def test_few_ids_are_not_sorted() -> None:
    assert embedded(3072) == {}


@pytest.mark.parametrize(("tokens", "segments"), [(4096, 4096), (8192, ENTRIES)])
def test_many_ids_are_sorted_and_summed_in_parts(tokens: int, segments: int) -> None:
    made = embedded(tokens)
    parts = tokens // 10 + segments
    assert made["sorted ids"] == made["their places"] == made["where segments start"] == 8 * tokens
    assert made["sums of parts"] == 4 * parts * WIDTH
    assert made["where parts start"] == pytest.approx(8 * parts, abs=512)


def summed(device: Multiprocessors, tokens: int = 8192, width: int = 1024) -> dict[str, int]:
    tape = Tape(device=device)
    rows, columns = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, tokens)), (Axis(Dim.HIDDEN, width),)
    x = tape.outside((*rows, Axis(Dim.FFN, WIDTH)), BF16, True)
    weight, bias = tape.outside((*columns, Axis(Dim.FFN, WIDTH)), BF16, True), tape.outside(columns, BF16, True)
    return backward(tape, nn.linear(tape, x, (*rows, *columns), weight, bias))


def test_the_gradient_of_a_bias_is_summed_by_many_blocks() -> None:
    # 128 blocks of 128 threads, each with its own sums of 1024 columns
    assert summed(MULTIPROCESSORS["h100-80gb"])["partial sums of blocks"] == 4 * 1024 * 128 * 128
    assert summed(UNKNOWN_DEVICE) == {}
    assert "partial sums of blocks" not in summed(MULTIPROCESSORS["h100-80gb"], tokens=512)


def test_so_is_that_of_a_norm_but_not_a_mean_of_each_token() -> None:
    tape = Tape(device=MULTIPROCESSORS["a100-80gb"])
    x = tape.outside((Axis(Dim.TOKENS, 2048), Axis(Dim.HIDDEN, 1024)), FP32, True)
    weight = tape.outside((Axis(Dim.HIDDEN, 1024),), FP32, True)
    assert backward(tape, aten.mul(tape, weight, x))["partial sums of blocks"] == 4 * 4096 * 1024
    tape = Tape(device=MULTIPROCESSORS["a100-80gb"])
    x = tape.outside((Axis(Dim.TOKENS, 2048), Axis(Dim.HIDDEN, 1024)), FP32, True)
    inverse = tape.outside((Axis(Dim.TOKENS, 2048), Axis(Dim.ONE, 1)), FP32, True)
    assert "partial sums of blocks" not in backward(tape, aten.mul(tape, x, inverse))


def test_autocast_to_fp32_raises_what_is_not_in_it_and_caches_nothing() -> None:
    """What is in fp32 is read as it is: there is no cast that could die when the region ends."""
    tape = Tape(FP32)
    wide, low = (tape.outside((Axis(Dim.HIDDEN, WIDTH),), dtype, True) for dtype in (FP32, BF16))
    assert nn.lowered(tape, wide) == wide
    assert tape.dtype[nn.lowered(tape, low)] == FP32
    assert tape.cached == {}


@pytest.mark.parametrize(("torch", "blocks"), [("2.8.0", True), ("2.14.1", False)])
def test_a_native_norm_s_own_kernel_adds_up_its_weight_s_gradient(torch: str, blocks: bool) -> None:
    """Held against PyTorch 2.14 on its own allocator."""
    tape = Tape(device=MULTIPROCESSORS["h100-80gb"])
    x = tape.outside((Axis(Dim.TOKENS, 2048), Axis(Dim.HIDDEN, 1024)), BF16, True)
    weight = tape.outside((Axis(Dim.HIDDEN, 1024),), BF16, True)
    rules_torchtitan.norm(tape, torch, x, weight)
    assert any("partial sums of blocks" in storage.name for storage in tape.storages) is blocks
