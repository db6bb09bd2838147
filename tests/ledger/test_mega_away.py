"""What the host holds of activations: the tensors that go, of every micro-batch in flight, page-locked."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import host_lines
from trainledger.lines.line import Place
from trainledger.plan.read import read_plan

from .test_rules_te import BATCH, HIDDEN, LLAMA, SEQUENCE, te

LAYERS = LLAMA["num_hidden_layers"]


def answer(modules: list[str], **parts: Any) -> Estimate:
    options = {
        "fine_grained_activation_offloading": True,
        "offload_modules": modules,
        "min_offloaded_tensor_size": 1024,
    }
    given = te(LLAMA, stack={"options": options}, **parts).model_dump(exclude_unset=True)
    return estimate(read_plan({**given, "offload": {"activations": "cpu"}}), 0)


def test_the_last_layer_stays_on_the_device_and_others_go() -> None:
    lines = answer(["attn_proj"]).ledger.host
    assert {line.place for line, _ in lines} == {Place.HOST}
    assert [(line.unit, count) for line, count in lines] == [(2 * BATCH * SEQUENCE * HIDDEN, LAYERS - 1)]


def test_every_micro_batch_in_flight_holds_its_own() -> None:
    alone = host_lines(answer(["attn_proj"], parallel={"pp": 4, "dp": 1}, batch={"accumulation": 1}).ledger)
    four = host_lines(answer(["attn_proj"], parallel={"pp": 4, "dp": 1}, batch={"accumulation": 8}).ledger)
    assert alone == 2 * BATCH * SEQUENCE * HIDDEN * LAYERS // 4
    assert four == 4 * alone


def test_nothing_goes_without_offloading() -> None:
    assert host_lines(estimate(te(LLAMA)).ledger) == 0


@pytest.mark.parametrize("modules", [["core_attn"], ["qkv_linear", "attn_proj"]])
def test_page_locked_copies_are_powers_of_two(modules: list[str]) -> None:
    sizes = {line.unit for line, _ in answer(modules).ledger.host}
    assert sizes
    assert all(size & (size - 1) == 0 for size in sizes)
