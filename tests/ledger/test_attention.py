"""Attention kernels on a tape: sizes that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16, BOOL, FP32, DType
from trainledger.facts.kernels_attention import Kernel
from trainledger.ledger.attention import Call, handed
from trainledger.ledger.engine import Backward
from trainledger.ledger.fused import Site
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.program import Attention

BATCH, SEQUENCE, HEADS, HEAD = 2, 192, 4, 128
SPEC = Attention(HEADS, HEADS, HEAD)
QUERIES = 2 * BATCH * SEQUENCE * HEADS * HEAD


def dims_of(heads: int, head: int = HEAD) -> Dims:
    return (
        Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, SEQUENCE), Axis(Dim.HEADS, heads), Axis(Dim.HEAD_DIM, head)
    )  # fmt: skip


class Ran:
    """One call of attention, forward and backward, on tensors that it does not own."""

    def __init__(self, kernel: Kernel, spec: Attention = SPEC, dtype: DType = BF16, mask: bool = False, **site: str):
        self.tape = tape = Tape()
        q, k, v = (
            tape.inherit(dims_of(heads, spec.head), dtype, True, name)
            for name, heads in (("q", spec.heads), ("k", spec.kv_heads), ("v", spec.kv_heads))
        )
        square = (
            Axis(Dim.BATCH, BATCH), Axis(Dim.ONE, 1), Axis(Dim.SEQUENCE, SEQUENCE), Axis(Dim.KEY_SEQUENCE, SEQUENCE)
        )  # fmt: skip
        given = tape.outside(square, BOOL, False) if mask else None
        repeats = mask and spec.heads != spec.kv_heads
        out = handed(tape, (q, k, v), spec, Call(given, Site(kernel, **site), repeats))
        forward = run_forward(tape, frozenset({out, q, k, v}), saving=True)
        born = [tape.storages[event - 1] for event in forward.events if event > 0]
        self.born = {storage.name.split(": ")[-1]: storage.size for storage in born}
        self.kept = {tape.storages[at].name.split(": ")[-1]: tape.storages[at].size for at in forward.held}
        back = Backward(tape, dict(forward.held), frozenset())
        back.seed(out, "incoming")
        back.run(0, len(tape.prims))
        self.back = {}
        for event in back.events:
            if event > 0:
                storage = tape.storages[event - 1]
                self.back[storage.name.split(": ")[-1]] = storage.size


@pytest.mark.parametrize("kernel", [Kernel.FLASH, Kernel.CUDNN, Kernel.PACKAGE, Kernel.FLEX, Kernel.EFFICIENT])
def test_a_fused_kernel_keeps_its_inputs_output_and_a_number_a_row(kernel: Kernel) -> None:
    ran = Ran(kernel)
    assert [ran.kept[name] for name in ("q", "k", "v", "output")] == [QUERIES] * 4
    assert ran.kept["logsumexp"] == 4 * BATCH * HEADS * SEQUENCE


def test_the_random_state_lies_on_the_device_from_a_release_on() -> None:
    def states(kernel: Kernel, torch: str) -> int:
        return sum(name.startswith("random state") for name in Ran(kernel, torch=torch).kept)

    assert [states(Kernel.FLASH, "2.13"), states(Kernel.FLASH, "2.6.0"), states(Kernel.CUDNN, "2.4.1")] == [2, 0, 2]
    assert [states(Kernel.PACKAGE, "2.4.1"), states(Kernel.EFFICIENT, "2.13")] == [1, 0]


def test_flash_backward_sums_query_gradients_in_fp32() -> None:
    ran = Ran(Kernel.FLASH)
    rows = 256  # 192 rounded up to 128
    assert ran.back["softmax_d"] == 4 * BATCH * HEADS * rows
    assert ran.back["sums of query gradients"] == 4 * BATCH * HEADS * rows * HEAD
    assert "key gradients by query head" not in ran.back


def test_cudnns_backward_works_in_one_tensor() -> None:
    work = {name: size for name, size in Ran(Kernel.CUDNN).back.items() if "sums" in name}
    assert work == {"sums of query gradients and of softmax": 4 * BATCH * HEADS * SEQUENCE * (HEAD + 1)}


def test_flash_backward_of_grouped_heads_makes_gradients_for_every_query_head() -> None:
    ran = Ran(Kernel.FLASH, replace(SPEC, kv_heads=2))
    assert ran.kept["k"] == QUERIES // 2
    assert ran.back["key gradients by query head"] == ran.back["value gradients by query head"] == QUERIES


@pytest.mark.parametrize(("torch", "width"), [("2.4.1", 160), ("2.13", 192)])
def test_wide_heads_are_rounded_by_release(torch: str, width: int) -> None:
    ran = Ran(Kernel.FLASH, replace(SPEC, head=160), torch=torch)
    assert ran.back["sums of query gradients"] == 4 * BATCH * HEADS * 256 * width


def test_flash_pads_heads_to_eight() -> None:
    ran = Ran(Kernel.FLASH, replace(SPEC, head=100))
    assert ran.kept["padded"] == ran.kept["output"] == 2 * BATCH * SEQUENCE * HEADS * 104
    assert ran.born["copy"] == 2 * BATCH * SEQUENCE * HEADS * 100


def test_a_bool_mask_is_written_out_and_kept_by_every_call() -> None:
    ran = Ran(Kernel.EFFICIENT, replace(SPEC, kv_heads=2), mask=True)
    assert ran.kept["additive mask"] == 2 * BATCH * SEQUENCE * SEQUENCE
    assert ran.kept["repeated heads"] == QUERIES


def test_the_efficient_kernel_sums_wide_16_bit_output_in_fp32() -> None:
    wide = Ran(Kernel.EFFICIENT, replace(SPEC, head=256))
    assert wide.born["output sums"] == 4 * BATCH * SEQUENCE * HEADS * 256
    assert "output sums" not in Ran(Kernel.EFFICIENT).born


def test_delta_of_fp32_is_summed_from_a_product() -> None:
    ran = Ran(Kernel.EFFICIENT, dtype=FP32)
    assert ran.back["output times gradient"] == 2 * QUERIES
    assert ran.back["delta"] == 4 * BATCH * HEADS * SEQUENCE
    assert "output times gradient" not in Ran(Kernel.EFFICIENT).back


def test_math_keeps_scores_and_copies_in_fp32() -> None:
    ran = Ran(Kernel.MATH, replace(SPEC, kv_heads=2), torch="2.13")
    scores = 4 * BATCH * HEADS * SEQUENCE * SEQUENCE
    assert ran.kept["softmax"] == scores
    assert ran.kept["scaled keys"] == ran.kept["repeated heads"] == 2 * QUERIES
    assert ran.born["before masked rows are cleared"] == scores
    older = Ran(Kernel.MATH, replace(SPEC, kv_heads=2), torch="2.4.1")
    assert older.kept["softmax"] == scores // 2
