"""DeepSpeed's checkpoints: names of files, what the states' hold, and weights that are not trained."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.checkpoint import Checkpoint
from trainledger.answer.disk import beside
from trainledger.answer.estimate import estimate

MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
LORA = {"kind": "lora", "r": 8, "targets": ["q_proj"]}
COUNT = estimate(plan_of()).parameters.total
MODEL, OPTIM = "model_states.pt", "optim_states.pt"
RANKS = 4


def made(stage: str, framework: str = "deepspeed", version: str = "0.19.8", **sections: Any) -> Checkpoint:
    sections = {"precision": MIXED, "parallel": {"strategy": stage, "dp": RANKS}, **sections}
    stack = {"framework": framework, "versions": {"torch": "2.13.0", "deepspeed": version}}
    plan = plan_of(batch={"sequence": 16}, stack=stack, **sections)
    return beside(estimate(plan)).checkpoint


def bytes_of(found: Checkpoint, ending: str) -> int:
    return next(one.bytes for one in found.files if one.name.endswith(ending))


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
@pytest.mark.parametrize(("weights", "prefix"), [("bf16", "bf16_zero_pp"), ("fp16", "zero_pp"), ("fp32", "zero_pp")])
def test_each_rank_s_states_with_an_fp32_copy_of_any_weights(stage: str, weights: str, prefix: str) -> None:
    """stage_1_and_2.py and stage3.py clone each partition to fp32 even where weights are fp32 themselves."""
    precision = {"weights": weights, "compute": weights, "gradients": weights, "master": "fp32", "grad_scaler": False}
    found = made(stage, precision=precision)
    (states,) = (one for one in found.files if one.name.endswith(OPTIM))
    assert states.name.startswith(f"global_step*/{prefix}")
    assert states.count == RANKS
    assert states.bytes == pytest.approx(12 * COUNT / RANKS, rel=0.01)
    assert states.total == pytest.approx(12 * COUNT, rel=0.01)


@pytest.mark.parametrize(
    ("version", "name"), [("0.19.8", "global_step*/offloaded_tensors/rank*/*.tensor.swp"), ("0.12.6", OPTIM)]
)
def test_buffers_for_swapping_are_in_no_checkpoint(version: str, name: str) -> None:
    found = made("zero3", version=version, offload={"optimizer": "nvme"})
    assert bytes_of(found, name) == bytes_of(made("zero3"), OPTIM)


def test_weights_that_are_not_trained_lie_beside_the_others() -> None:
    """Stage 2 writes them in the module's state dict and as fragments; stage 3 as fragments of each rank."""
    whole = bytes_of(made("zero1", adapter=LORA), MODEL)
    trained = estimate(plan_of(adapter=LORA)).parameters.trainable
    assert whole == 2 * (COUNT + trained)
    assert bytes_of(made("zero2", adapter=LORA), MODEL) == whole + 2 * COUNT
    assert bytes_of(made("zero3", adapter=LORA), MODEL) == pytest.approx(2 * COUNT / RANKS, rel=0.01)


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_what_waits_on_the_host_for_the_device_is_in_no_checkpoint(stage: str) -> None:
    """An offloaded optimizer has copies of the weights that it updated, and gradients, which are not saved."""
    assert made(stage, offload={"optimizer": "cpu"}).total == made(stage).total


@pytest.mark.parametrize("stage", ["zero2", "zero3"])
def test_weights_without_states_are_trained_too(stage: str) -> None:
    """SGD without momentum keeps master weights alone."""
    found = made(stage, optimizer={"name": "sgd", "implementation": None})
    assert sum(one.total for one in found.files if one.name.endswith(MODEL)) == (2 * COUNT if stage == "zero2" else 0)
    assert bytes_of(found, OPTIM) == pytest.approx(4 * COUNT / RANKS, rel=0.01)


def test_the_trainer_leaves_an_adapter_s_base_out() -> None:
    trained = estimate(plan_of(adapter=LORA)).parameters.trainable
    for stage in ("zero1", "zero2"):
        assert bytes_of(made(stage, "transformers", adapter=LORA), MODEL) == 2 * trained
    found = made("zero3", "transformers", adapter=LORA)
    assert not any(one.name.endswith(MODEL) for one in found.files)
    assert bytes_of(found, OPTIM) == pytest.approx(12 * trained / RANKS, rel=0.01)


@pytest.mark.parametrize("threshold", [0, 10**9])
def test_weights_that_stay_whole_are_partitioned_before_they_are_written(threshold: int) -> None:
    """DeepSpeed 0.19.8 on two processes of a CPU: all of stage 3's model states are empty, of an adapter's run they are
    half of the base."""
    options = {"stage3_param_persistence_threshold": threshold}
    parallel = {"strategy": "zero3", "dp": RANKS, "options": options}
    assert not any(one.name.endswith(MODEL) for one in made("zero3", parallel=parallel).files)
    base = bytes_of(made("zero3", parallel=parallel, adapter=LORA), MODEL)
    assert base == pytest.approx(2 * COUNT / RANKS, rel=0.01)


def test_openrlhf_writes_them_too() -> None:
    roles = {"rollout": {"engine": {"memory_share": 0.5}}}
    plan = plan_of(
        task="grpo", roles=roles, batch={"sequence": 16, "loss_tokens": 8}, precision=MIXED,
        parallel={"strategy": "zero3", "dp": RANKS}, stack={"framework": "openrlhf"},
    )  # fmt: skip
    found = beside(estimate(plan)).checkpoint
    assert found.format.name == "deepspeed"
    alone = made("zero3")
    assert [(one.name, one.count) for one in found.files] == [(one.name, one.count) for one in alone.files]
    assert [one.bytes for one in found.files] == [one.bytes for one in alone.files]
    assert bytes_of(found, OPTIM) == pytest.approx(12 * COUNT / RANKS, rel=0.01)
