"""Defaults: what is filled in, by which framework and version, and why."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.plan.degrees import degrees, global_batch
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve
from trainledger.plan.schema import Plan

BATCH = {"micro_batch": 2, "sequence": 8}


def resolved(model: dict[str, Any] | None = None, **sections: Any) -> Plan:
    return resolve(read_plan({"model": model or {"model_type": "llama"}, "batch": BATCH, **sections}))[0]


def versions(**packages: str) -> dict[str, Any]:
    return {"versions": packages}


@pytest.mark.parametrize(
    "torch, transformers, implementation",
    [
        ("2.13.0", "5.24.0", "fused"),
        ("2.7.1", "5.24.0", "foreach"),
        ("2.10.0", "4.48.0", "foreach"),
        ("2.8.0a0", "4.57.1", "fused"),
    ],
)
def test_the_trainers_adamw_is_fused_from_two_versions_on(torch: str, transformers: str, implementation: str) -> None:
    assert resolved(stack=versions(torch=torch, transformers=transformers)).optimizer.implementation == implementation


def test_weights_follow_the_checkpoint_from_transformers_5_on() -> None:
    keys = {"model_type": "llama", "torch_dtype": "float16"}
    assert resolved(keys).precision.weights == "fp16"
    assert resolved().precision.weights == "bf16"
    assert resolved(keys, stack=versions(transformers="4.48.0")).precision.weights == "fp32"


def test_what_follows_the_weights() -> None:
    precision = resolved(precision={"weights": "fp32"}).precision
    assert (precision.compute, precision.gradients, precision.reduce, precision.master) == ("fp32", "fp32", None, None)


def test_an_adapter_is_fp32_and_so_are_its_gradients() -> None:
    plan = resolved(adapter={"kind": "lora", "targets": "all-linear"}, precision={"weights": "bf16"})
    assert plan.adapter is not None
    assert (plan.adapter.dtype, plan.adapter.r, plan.precision.gradients, plan.trainable) == ("fp32", 8, "fp32", "none")


def test_megatron_and_zero_keep_master_weights() -> None:
    megatron = resolved(stack={"framework": "megatron"}, parallel={"dp": 2})
    assert megatron.parallel.strategy == "megatron-ddp"
    assert (megatron.precision.master, megatron.precision.gradients) == ("fp32", "fp32")
    assert resolved(parallel={"strategy": "zero2", "dp": 2}).precision.master == "fp32"


def test_reentrant_by_version() -> None:
    stack = {"recompute": "full", **versions(transformers="4.48.0")}
    assert resolved(stack=stack).stack.recompute.reentrant is True
    assert resolved(stack={"recompute": "full"}).stack.recompute.reentrant is False


def test_degrees_are_derived() -> None:
    plan = resolved(parallel={"world": 16, "tp": 2, "pp": 2})
    assert (plan.parallel.dp, plan.parallel.strategy, plan.parallel.schedule) == (4, "ddp", "1f1b")
    assert degrees(resolved(parallel={"dp": 4, "cp": 2})).world == 8
    assert degrees(resolved()).world == 1


def test_the_global_batch_gives_the_accumulation() -> None:
    plan = resolved(batch={**BATCH, "global": 32}, parallel={"dp": 4})
    assert plan.batch.accumulation == 4
    assert global_batch(plan) == 32


def test_every_default_says_why() -> None:
    _, defaulted = resolve(read_plan({"model": "x", "batch": BATCH}))
    rows = {default.path: default for default in defaulted}
    assert rows["stack.versions.torch"].value == "2.14.1"
    assert "transformers 5.24.0" in rows["optimizer.implementation"].why
    assert all(default.why and default.source for default in defaulted)


def titan(world: int = 8, **stack: Any) -> Plan:
    return resolved(parallel={"world": world}, stack={"framework": "torchtitan", **stack})


def test_the_release_of_pytorch_follows_torchtitans_day() -> None:
    assert titan(**versions(torchtitan="5940ddeb532c")).stack.versions["torch"] == "2.7"
    assert titan(**versions(torchtitan="5940ddeb532c", torch="2.6.0")).stack.versions["torch"] == "2.6.0"
    assert titan(**versions(torch="1963fc8 (2024-12-23)")).stack.versions["torch"] == "2.7"
    assert titan().stack.versions["torchtitan"] == "0.2.2"
    assert titan(loss="chunked").stack.versions["torchtitan"].startswith("b5bcd76")


def test_torchtitan_is_of_the_day_that_pytorch_tells() -> None:
    assert titan(**versions(torch="2.6.0")).stack.versions["torchtitan"] == "2024-12-16"
    assert titan(**versions(torch="2.14.1")).stack.versions["torchtitan"] == "0.2.2"


def test_no_torchtitan_runs_on_a_build_of_pytorch_made_before_it() -> None:
    both = versions(torchtitan="b5bcd76c66d0", torch="2.8.0a0")
    plan, filled = resolve(
        read_plan({"model": {"model_type": "llama"}, "batch": BATCH, "stack": {"framework": "torchtitan", **both}})
    )
    assert plan.stack.versions["torchtitan"] == "2025-06-30"
    assert any("b5bcd76c66d0 came after" in one.why for one in filled)
    assert titan(**versions(torchtitan="b5bcd76c66d0", torch="2.8.0")).stack.versions["torchtitan"] == "b5bcd76c66d0"
    assert titan(**versions(torchtitan="775a486", torch="2.8.0a0")).stack.versions["torchtitan"] == "775a486"


@pytest.mark.parametrize("kind, recompute", [("llama", ("selective", "op")), ("gpt_oss", ("full", None))])
def test_torchtitans_configurations_recompute(kind: str, recompute: tuple[str, str | None]) -> None:
    found = resolved({"model_type": kind}, stack={"framework": "torchtitan"}).stack.recompute
    assert (found.kind, found.policy) == recompute


def test_torchtitans_script_for_one_node_sets_expandable_segments() -> None:
    expandable = {"expandable_segments": True}
    assert titan().stack.allocator == expandable
    assert titan(world=16).stack.allocator == {}
    assert titan(**versions(torchtitan="40f8fd007957")).stack.allocator == {}
    assert titan(env={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}).stack.allocator == {}
    assert titan(allocator={"expandable_segments": False}).stack.allocator == {"expandable_segments": False}


@pytest.mark.parametrize(
    "precision", [{"weights": "fp8"}, {"weights": "bf16", "compute": "fp8"}, {"weights": "fp32", "compute": "mxfp8"}]
)
def test_gradients_do_not_follow_into_8_bits(precision: dict[str, Any]) -> None:
    found = resolved(precision=precision, parallel={"strategy": "fsdp2", "world": 4}).precision
    assert found.gradients in ("fp32", "bf16")
    assert found.reduce in ("fp32", "bf16", None)


@pytest.mark.parametrize(
    ("task", "versions", "loss"),
    [
        ("dpo", {"trl": "1.16.0"}, "fused-linear"),
        ("kto", {"trl": "1.15.0"}, "fused-linear"),
        ("dpo", {"trl": "1.14.0"}, "full-fp32"),
        ("orpo", {"trl": "1.16.0"}, "full-fp32"),
        ("dpo", {"trl": "1.16.0", "llamafactory": "0.9.4"}, "full-fp32"),
        ("dpo", {}, "full-fp32"),
        ("sft", {"trl": "1.16.0"}, "full-fp32"),
    ],
)
def test_the_loss_is_that_of_the_trainer_s_release(task: str, versions: dict[str, str], loss: str) -> None:
    """From 1.15 on TRL's trainers over preferences run a fused head, and nothing else."""
    data = {"model": {"model_type": "llama"}, "task": task, "batch": {"micro_batch": 1, "sequence": 16}}
    plan = resolve(read_plan({**data, "stack": {"versions": versions}}))[0]
    assert plan.stack.loss == loss


@pytest.mark.parametrize(("strategy", "place"), [("zero2", "cpu"), ("zero3", "nvme"), ("fsdp2", None)])
def test_deepspeed_s_own_section_says_where_the_optimizer_lies(strategy: str, place: str | None) -> None:
    """And so that it is stepped on the host."""
    options = {"offload_optimizer": {"device": place or "cpu"}}
    plan = resolved(parallel={"strategy": strategy, "dp": 4, "options": options})
    assert plan.offload.optimizer == place
    assert (plan.optimizer.implementation == "cpu") == (place is not None)


@pytest.mark.parametrize(
    ("strategy", "release", "more", "dtype"),
    [
        ("ddp", "", {}, "fp32"),
        ("zero1", "0.19.8", {}, "bf16"),
        ("zero2", "0.9.5", {}, "bf16"),
        ("zero3", "0.18.9", {}, "bf16"),
        ("zero3", "0.19.8", {}, "fp32"),
        ("zero3", "0.19.8", {"quantization": {"kind": "nf4"}}, "bf16"),
        ("zero3", "0.19.8", {"autocast": False}, "bf16"),
    ],
)
def test_adapters_under_deepspeed_have_the_engines_dtype(
    strategy: str, release: str, more: dict[str, Any], dtype: str
) -> None:
    """But beside a model that was built under zero.Init, since a release."""
    given = dict(more)
    options = {"autocast_adapter_dtype": False} if given.pop("autocast", True) is False else {}
    plan = resolved(
        precision={"weights": "bf16"},
        adapter={"kind": "lora", "r": 8, "targets": "all-linear", "options": options},
        parallel={"strategy": strategy, "world": 2},
        stack=versions(deepspeed=release) if release else {},
        **given,
    )
    assert plan.adapter is not None
    assert plan.adapter.dtype == dtype
