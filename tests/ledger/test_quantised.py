"""What a quantised layer makes and keeps, and a run over a quantised base."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP16, FP32, DType
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE
from trainledger.facts.quantization import QUANT_KINDS
from trainledger.ledger.quantised import Base, linear
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.program import Packing

TOKENS, IN, OUT = 4096, 1024, 2048
WHOLE = 2 * IN * OUT


def made(kind: str, dtype: DType = BF16, double: bool = False, tokens: int = TOKENS, **more: Any) -> tuple[int, int]:
    """Bytes that autograd, or the graph, keeps of a layer's forward, and the most beside its result while it runs."""
    release, loaded, inner = more.get("release", ""), more.get("loaded", dtype), more.get("inner", IN)
    row = QUANT_KINDS[kind]
    packing = Packing(row, double, 128, release, row.reads or BF16, loaded)
    tape, tail = Tape(None, more.get("device", UNKNOWN_DEVICE)), (Axis(Dim.COLUMNS, inner),)
    dims = (Axis(Dim.TOKENS, tokens),)
    x = tape.inherit((*dims, *tail), dtype, True, "input")
    weight = tape.outside((Axis(Dim.ROWS, OUT), *tail), BF16, False)
    out = linear(tape, Base(x, (*dims, Axis(Dim.ROWS, OUT)), weight, None, packing))
    tape.end([x])
    forward = run_forward(tape, frozenset({out, *tape.attached}), saving=True)
    held = {one for one in forward.held if one != EXTERNAL} | {tape.store[value] for value in tape.attached}
    now = most = 0
    for event in forward.events:
        size = tape.storages[abs(event) - 1].size
        now += size if event > 0 else -size
        most = max(most, now)
    return sum(tape.storages[one].size for one in held), most - tape.storages[tape.store[out]].size


def test_a_4_bit_layer_keeps_nothing_and_makes_the_weight_for_a_moment() -> None:
    assert made("nf4") == (0, WHOLE)
    scales, result = 4 * (IN * OUT // 64), 2 * TOKENS * OUT
    assert made("nf4", double=True, release="0.49.0") == (0, max(WHOLE, scales + WHOLE - result))
    # one function has it all since: the scales before and after their mean is added live as long as the weight
    assert made("nf4", double=True) == (0, WHOLE + 2 * scales)


def test_an_fp32_input_is_cast_and_its_result_cast_back() -> None:
    kept, most = made("nf4", FP32, loaded=BF16)
    assert kept == 0
    assert most == 2 * TOKENS * IN + max(2 * TOKENS * OUT, WHOLE + 2 * TOKENS * OUT - 4 * TOKENS * OUT)


def test_a_weight_loaded_in_another_dtype_is_cast_before_050() -> None:
    wide, result = 8 * WHOLE, 2 * TOKENS * OUT
    assert made("nf4", inner=8 * IN, loaded=FP16, release="0.43.3")[1] == 2 * wide - result
    assert made("nf4", inner=8 * IN, loaded=FP16, release="0.50.2")[1] == wide


def test_a_kernel_reads_the_packed_weight_for_few_rows() -> None:
    """By the device and the weight's shape: of this one up to 1536 rows on an A100, 512 on an H100."""
    a100 = replace(MULTIPROCESSORS["a100-80gb"], architecture="sm80")
    h100 = replace(MULTIPROCESSORS["h100-80gb"], architecture="sm90")
    short, whole = IN // 2, WHOLE // 2
    assert made("nf4", tokens=1024, inner=short, device=a100)[1] == 0
    assert made("nf4", tokens=1024, inner=short, device=h100)[1] == whole
    assert made("nf4", tokens=512, inner=short, device=h100)[1] == 0
    assert made("nf4", tokens=512, inner=short)[1] == whole
    assert made("nf4", tokens=512, inner=short, device=h100, release="0.49.0")[1] == whole


@pytest.mark.parametrize(("kind", "kept"), [("gptq4", 0), ("awq4", 2 * TOKENS * IN), ("fp8", 0)])
def test_what_other_kinds_keep(kind: str, kept: int) -> None:
    assert made(kind, FP16 if kind != "fp8" else BF16)[0] == kept


def test_int8_holds_its_input_and_before_045_its_codes() -> None:
    assert made("int8", FP16)[0] == 2 * TOKENS * IN
    assert made("int8", FP16, release="0.44.1")[0] == 3 * TOKENS * IN


ADAPTER = {"kind": "lora", "r": 8, "targets": "all-linear", "dtype": "fp32"}
PRECISION = {"weights": "bf16", "compute": "bf16", "gradients": "fp32"}


def answer(quantization: dict[str, Any] | None, reentrant: bool | None = None, **precision: str) -> Estimate:
    recompute: Any = "none" if reentrant is None else {"kind": "full", "reentrant": reentrant}
    versions = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.15.0"}  # whose loop lets go of the loss
    stack = {"recompute": recompute, "versions": versions, "options": {"batch_tensors": ["input_ids"]}}
    sections = {"adapter": ADAPTER, "precision": {**PRECISION, **precision}, "stack": stack}
    return estimate(plan_of({**LLAMA, "vocab_size": 64}, quantization=quantization, **sections))


def weights(found: Estimate) -> int:
    line = next(one for one in found.ledger.moments if one.name == "init")
    return sum(found.ledger.lines[at].unit * n for at, n in line.live if found.ledger.lines[at].account == "weights")


def test_fewer_bits_never_hold_more() -> None:
    kinds = (None, {"kind": "int8"}, {"kind": "nf4"}, {"kind": "nf4", "double": True})
    sizes = [weights(answer(kind)) for kind in kinds]
    assert sizes[0] > sizes[1] > sizes[2]


def test_every_kind_runs_with_and_without_recompute() -> None:
    """All lines that a step makes end in it: the second step's end is the end of any other."""
    for kind in ("nf4", "fp4", "int8", "gptq4", "gptq8", "awq4", "fp8"):
        for reentrant in (None, False, True):
            found = answer({"kind": kind}, reentrant).ledger
            alive = 0
            for _, events, repeat, _ in found.segments:
                alive += repeat * sum(found.lines[abs(e) - 1].unit * (1 if e > 0 else -1) for e in events)
            kept = ("weights", "optimizer_states", "buffers", "workspace", "inputs", "logits_and_loss")
            last = found.moments[-1]
            assert alive <= sum(
                found.lines[at].unit * copies for at, copies in last.live if found.lines[at].account in kept
            )


def test_a_checkpoint_does_not_drop_what_int8_layers_hold() -> None:
    """Without reentrance every layer's inputs stay: three of the hidden size's and one of the feed-forward's width."""
    trap, free = (answer({"kind": "int8"}, reentrant) for reentrant in (False, True))
    loss = [max(m.allocated for m in one.ledger.moments if m.name == "step 2: loss") for one in (trap, free)]
    assert loss[0] - loss[1] == pytest.approx(3 * 512 * 2 * (3 * 256 + 640), rel=0.02)


def test_norms_in_fp32_make_the_stream_fp32_after_the_first_layer() -> None:
    """Of three kept layer inputs the first stays in 16 bits."""
    low, high = (answer({"kind": "nf4"}, True, **norms) for norms in ({}, {"norms": "fp32"}))
    lines = [line for line in high.ledger.lines if line.name == "hidden states"]
    assert {line.dtype.name for line in lines} == {"bf16", "fp32"}
    assert high.steps.allocated.expected > low.steps.allocated.expected
