"""Prices in numbers: recomputed operations, traffic between ranks, and over the host's link."""

from __future__ import annotations

import pytest

from tests.answer.test_advise import BASE
from trainledger.answer.changed import Change, planned, with_changes
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.prices import Cost, costs

LAYERS = 3
TOKENS = 4 * 1024 * 2  # micro-batch, sequence, accumulation
SHARDED = with_changes(
    BASE,
    [
        Change("stack.framework", "deepspeed"),
        Change("parallel", {"strategy": "zero2", "world": 4}),
        Change("optimizer.implementation", "fused"),
    ],
)


def priced(data, *changes: Change) -> tuple[Estimate, dict[str, Cost]]:
    before, after = estimate(planned(data)), estimate(planned(data, changes))
    return before, {f"{cost.what} {cost.unit}": cost for cost in costs(before, after)}


def test_recompute_in_operations() -> None:
    before, found = priced(BASE, Change("stack.recompute", {"kind": "full"}))
    weights = sum(weight.elements for block in before.model.blocks for weight in block.weights)
    pairs = TOKENS * 1024 / 2  # causal
    expected = 2 * LAYERS * weights * TOKENS + 4 * LAYERS * 1024 * pairs
    assert found["recomputed forward floating-point operations a step and rank"].amount == pytest.approx(expected)
    assert found["recomputed forward of the step's operations"].amount == pytest.approx(1 / 3)
    _, half = priced(BASE, Change("stack.recompute", {"kind": "selective", "policy": "every 2nd layer"}))
    assert half["recomputed forward of the step's operations"].amount == pytest.approx(1 / 6)


def test_a_frozen_model_has_no_weight_gradients_to_compute() -> None:
    lora = with_changes(BASE, [Change("adapter", {"kind": "lora", "r": 8, "targets": ["q_proj"]})])
    _, found = priced(lora, Change("stack.recompute", {"kind": "full"}))
    assert found["recomputed forward of the step's operations"].amount == pytest.approx(1 / 2, rel=0.05)


def test_what_changes_no_policy_recomputes_nothing_more() -> None:
    _, found = priced(with_changes(BASE, [Change("stack.recompute", {"kind": "full"})]), Change("batch.sequence", 512))
    assert found == {}


def test_sharded_weights_are_gathered_at_every_micro_batch() -> None:
    before, found = priced(SHARDED, Change("parallel.strategy", "zero3"))
    sent = found["sent between data-parallel ranks, each step B"].amount
    gathers, reductions, before_reductions = 2 * 2, 1, 2
    assert sent == pytest.approx(before.parameters.total * 2 * (gathers + reductions - before_reductions))


def test_offload_moves_gradients_and_weights() -> None:
    before, found = priced(SHARDED, Change("offload.optimizer", "cpu"), Change("optimizer.implementation", "cpu"))
    moved = found["over the host's link, each step and rank B"].amount
    assert moved == pytest.approx(before.parameters.total / 4 * (2 + 2))
    assert found["time of that s"].amount == pytest.approx(moved / 32e9)


def test_tensor_parallelism_sums_within_layers() -> None:
    spread = with_changes(BASE, [Change("parallel", {"strategy": "fsdp2", "world": 4, "dp": 4})])
    halved = (Change("parallel.tp", 2), Change("parallel.dp", 2))
    _, found = priced(spread, *halved)
    tokens, hidden = TOKENS, 1024
    assert found["sent within layers, each step B"].amount == pytest.approx(4 * LAYERS * 2 / 2 * tokens * hidden * 2)
