"""Notes on plans that DeepSpeed runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.answer.notes import Notes


def notes(strategy: str, **sections: Any) -> Notes:
    ranks = 1 if strategy == "none" else 4
    return estimate(plan_of(parallel={"strategy": strategy, "world": ranks, "dp": ranks}, **sections)).notes


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_zero_does_not_divide_activations(strategy: str) -> None:
    (found,) = (note for note in notes(strategy).warnings if "activations" in note)
    assert f"{strategy} divides" in found
    assert "by 4" in found


def test_no_such_note_without_zero() -> None:
    assert not [note for note in notes("ddp").warnings if "divides" in note]


@pytest.mark.parametrize(("version", "said"), [("0.19.3", True), ("0.19.4", False)])
def test_a_model_built_whole_kept_its_weights_before_a_release(version: str, said: bool) -> None:
    versions = {"torch": "2.14.1", "transformers": "5.24.0", "deepspeed": version}
    found = notes("zero3", stack={"framework": "deepspeed", "versions": versions})
    assert any("built whole" in note for note in found.uncounted) is said


def test_options_that_are_counted_are_not_listed_as_uncounted() -> None:
    options = {"reduce_bucket_size": 1000, "allgather_bucket_size": 1000, "zero_quantized_gradients": False}
    plan = plan_of(parallel={"strategy": "zero3", "world": 4, "dp": 4, "options": options})
    assert [note.partition(":")[0] for note in estimate(plan).notes.uncounted] == [
        "parallel.options.zero_quantized_gradients"
    ]


@pytest.mark.parametrize(("strategy", "said"), [("zero2", True), ("zero3", False)])
def test_nvme_is_the_hosts_memory_before_stage_3(strategy: str, said: bool) -> None:
    found = notes(strategy, offload={"optimizer": "nvme"}, optimizer={"implementation": "cpu"}).warnings
    assert any("what is sent to NVMe" in note for note in found) is said


@pytest.mark.parametrize(("name", "said"), [("paged-adamw-8bit", True), ("paged-adamw-32bit", False)])
def test_the_note_on_8_bit_states_is_of_states_in_8_bits(name: str, said: bool) -> None:
    batch = {"micro_batch": 64, "sequence": 2048}
    found = notes("none", optimizer={"name": name, "implementation": None}, batch=batch).warnings
    assert any("8-bit states save" in note for note in found) is said
