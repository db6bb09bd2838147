"""The estimate: amounts, verdict, states, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import device_of, estimate, states_of
from trainledger.base.problems import InputError
from trainledger.base.units import GIB

PARAMETERS = 2 * 1024 * 256 + 3 * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 640 + 2 * 256) + 256


def test_parameters_and_states_are_exact() -> None:
    found = estimate(plan_of())
    assert (found.parameters.total, found.parameters.trainable, found.parameters.active) == (PARAMETERS,) * 3
    states = states_of(found.ledger)
    assert states["weights"] == states["gradients"] == 2 * PARAMETERS
    assert states["optimizer_states"] == 4 * PARAMETERS
    assert states["master_weights"] == 0


def test_master_weights_and_their_moments_are_in_their_own_dtype() -> None:
    precision = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16", "master": "fp32"}
    states = states_of(estimate(plan_of(precision=precision)).ledger)
    assert states["master_weights"] == 4 * PARAMETERS
    assert states["optimizer_states"] == 8 * PARAMETERS


def test_the_peak_is_the_largest_moment_and_amounts_are_in_order() -> None:
    found = estimate(plan_of())
    assert found.peak.allocated.expected == max(moment.allocated for moment in found.ledger.moments)
    assert found.peak.allocated.expected <= found.peak.reserved.expected <= found.device.expected


@pytest.mark.parametrize(("memory", "outcome"), [(64 * GIB, "fits"), (GIB // 100, "does-not-fit")])
def test_the_verdict_follows_the_device(memory: int, outcome: str) -> None:
    found = estimate(plan_of(device={"name": "a100-80gb", "memory": memory}))
    assert found.verdict.outcome == outcome
    assert found.verdict.margin == memory - found.device.expected


def test_without_a_device_there_is_no_verdict() -> None:
    found = estimate(plan_of(device=None))
    assert found.verdict.outcome is None
    assert any("device" in note for note in found.notes.warnings)


def test_equal_data_parallel_ranks() -> None:
    found = estimate(
        plan_of(parallel={"strategy": "ddp", "dp": 8, "world": 8}, batch={"micro_batch": 2, "accumulation": 4})
    )
    assert (found.ranks, found.global_batch) == (8, 64)


@pytest.mark.parametrize(
    ("path", "sections"),
    [
        ("parallel.strategy", {"parallel": {"strategy": "megatron-fsdp", "dp": 8}}),
        ("parallel.tp", {"parallel": {"strategy": "ddp", "tp": 2, "world": 2}}),
        ("adapter.kind", {"adapter": {"kind": "vera", "targets": ["o_proj"]}, "quantization": {"kind": "nf4"}}),
        ("quantization", {"quantization": {"kind": "nf4"}}),
        ("offload.optimizer", {"offload": {"optimizer": "cpu"}, "parallel": {"strategy": "ddp", "dp": 2}}),
        ("optimizer.in_backward", {"optimizer": {"in_backward": True}, "parallel": {"strategy": "fsdp2", "dp": 2}}),
        ("optimizer.in_backward", {"optimizer": {"in_backward": True}, "stack": {"framework": "deepspeed"}}),
        ("task", {"task": "simpo"}),
        ("roles", {"task": "grpo"}),
        ("stack.framework", {"stack": {"framework": "nanotron"}}),
        ("stack.kernels", {"stack": {"kernels": ["te"]}}),
    ],
)
def test_what_cannot_be_estimated_is_refused_by_name(path: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(**sections))
    assert path in {problem.path for problem in caught.value.problems}


def test_every_refusal_is_listed_at_once() -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(task="simpo", offload={"params": "cpu"}, quantization={"kind": "int8"}))
    assert {problem.path for problem in caught.value.problems} >= {"task", "offload.params", "quantization"}


@pytest.mark.parametrize(
    "change", [{"num_attention_heads": 3}, {"num_key_value_heads": 3}, {"hidden_size": -1}, {"vocab_size": "many"}]
)
def test_impossible_shapes_are_problems(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        estimate(plan_of({**LLAMA, **change}))


def test_an_unknown_model_type_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match="mistral"):
        estimate(plan_of({**LLAMA, "model_type": "mistrall"}))


def test_low_precision_without_master_weights_is_warned_of() -> None:
    assert any("lose small updates" in note for note in estimate(plan_of()).notes.warnings)


def test_a_device_of_ones_own_has_memory_tiers() -> None:
    tiers = [
        {"name": "SRAM", "bytes": "900MB", "bandwidth": "20TB"},
        {"name": "host", "bytes": "512GB", "shared_by": 4},
    ]
    device = device_of(plan_of(device={"name": "mine", "memory": "48GiB", "tiers": tiers}))
    assert device is not None
    assert device.usable_bytes == 48 * GIB
    assert [(tier.name, tier.shared_by) for tier in device.tiers] == [("device memory", 1), ("SRAM", 1), ("host", 4)]
