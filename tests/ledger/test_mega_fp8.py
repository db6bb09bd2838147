"""What layers keep when Transformer Engine takes their products in 8 bits, against closed formulas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import BATCH, HEADS, HIDDEN, LLAMA, SEQUENCE, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_fp8 import own_dtype, quant_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.megatron import job_of
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

TE = {"kernels": ["te"], "attention": "fused", "options": {}}
TOKENS = SEQUENCE * BATCH
WIDTH = LLAMA["intermediate_size"]


def eight(**parts: Any) -> Plan:
    """A plan with 8-bit products."""
    precision = {"compute": "fp8", "fp8": {"recipe": "tensorwise"}, **parts.pop("precision", {})}
    stack = {**TE, **parts.pop("stack", {})}
    return plan_of({**LLAMA, **parts.pop("model", {})}, precision=precision, stack=stack, **parts)


def kept(plan: Plan, architecture: str = "sm90", at: int = 0) -> float:
    """Bytes of a token that a layer keeps."""
    job = job_of(plan, model_of(plan), architecture)
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    kinds, again = walks.groups(walks.whole())[at]
    walked = walks.layer(kinds, again, (False, False))
    return sum(job.book.lines[abs(one) - 1].unit * (1 if one > 0 else -1) for one in walked.forward) / TOKENS


PLAIN = plan_of(LLAMA, stack=TE)
INPUTS = 2 * HIDDEN + WIDTH  # inputs of the fused projection, of fc1, of fc2; that of the attention's output stays


@pytest.mark.parametrize("architecture", ["sm90", "sm100"])
def test_one_byte_an_element_of_each_input_that_nothing_else_keeps(architecture: str) -> None:
    assert kept(PLAIN, architecture) - kept(eight(), architecture) == pytest.approx(INPUTS, abs=1)


@pytest.mark.parametrize("recipe", ["blockwise", "mxfp8"])
def test_blocks_add_a_scale_each(recipe: str) -> None:
    plan = eight(precision={"fp8": {"recipe": recipe}})
    assert kept(PLAIN) - kept(plan) == pytest.approx(INPUTS * (1 - 1 / 32), rel=1e-3)


def test_a_delayed_recipe_keeps_the_output_layers_input_in_8_bits_beside_the_attentions_own() -> None:
    delayed = eight(precision={"fp8": {"recipe": "delayed"}})
    assert kept(delayed) - kept(eight()) == pytest.approx(HIDDEN, abs=1)


def test_layers_at_the_ends_stay_in_16_bits() -> None:
    plan = eight(stack={"options": {"first_last_layers_bf16": True}})
    assert kept(plan, at=0) == kept(plan, at=-1) == kept(PLAIN)
    assert kept(plan, at=1) == kept(eight())


def buffers(plan: Plan) -> int:
    """Bytes of weights' copies in 8 bits."""
    found = estimate(plan)
    steady = next(one for one in found.ledger.moments if one.name == "step 2: optimizer")
    lines = found.ledger.lines
    return sum(lines[line].unit * copies for line, copies in steady.live if " in 8 bits" in lines[line].name)


MATRICES = HIDDEN * (HEADS + 2 * 4) * HIDDEN // HEADS + HIDDEN * HIDDEN + 3 * HIDDEN * WIDTH


@pytest.mark.parametrize(("device", "copies"), [("h100-80gb", 2), ("b200", 1)])
def test_weights_copies_stay_by_rows_and_columns_unless_products_read_either_way(device: str, copies: int) -> None:
    assert buffers(eight(device=device)) == copies * MATRICES * LLAMA["num_hidden_layers"]


def test_weights_in_8_bits_have_no_copy_of_their_rows() -> None:
    precision = {"fp8": {"recipe": "tensorwise", "param_gather": True}}
    assert buffers(eight(precision=precision, device="b200")) == 0
    assert buffers(eight(precision=precision, device="h100-80gb")) == MATRICES * LLAMA["num_hidden_layers"]


def test_scales_cover_their_blocks() -> None:
    quant = quant_of(eight(precision={"fp8": {"recipe": "blockwise"}}), "sm90")
    assert quant is not None
    dims = (Axis(Dim.TOKENS, 256), Axis(Dim.HIDDEN, 512))
    assert quant.scales(dims) == 256 * 512 // 128 * 4
    assert quant.scales(dims, weight=True) == 2 * 4 * 4


def test_weights_in_8_bits_pass_for_fp32_where_no_master_stands_beside_them() -> None:
    eights = {"weights": "fp8", "master": None}
    assert own_dtype(eight(precision=eights)) == FP32
    assert own_dtype(eight(precision={"weights": "fp8"})) == BF16


@pytest.mark.parametrize(("length", "each"), [(None, 512 + 512), (1024, 4 * 1024 * 3 + 4 * 1024 * 2)])
def test_delayed_scaling_keeps_scales_and_largest_values_of_each_layers_tensors(length: int | None, each: int) -> None:
    options = {} if length is None else {"fp8_amax_history_len": length}
    lines = estimate(eight(precision={"fp8": {"recipe": "delayed"}}, stack={"options": options})).ledger
    end = dict(next(one.live for one in lines.moments if one.name == "step 2: optimizer"))
    found = {line.name: (line.unit, end[at]) for at, line in enumerate(lines.lines) if "of a layer's" in line.name}
    layers = 4 * LLAMA["num_hidden_layers"]
    assert {count for _, count in found.values()} == {layers}
    assert sum(unit for name, (unit, _) in found.items() if name.startswith("largest")) == each
    assert not any("of a layer's" in line.name for line in estimate(eight()).ledger.lines)
