"""A node's RAM: while a model loads, while steps run, while it is saved."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.disk import beside
from trainledger.answer.estimate import estimate
from trainledger.answer.host import HostMoment, copies_of, loaded_bytes, way_of
from trainledger.base.units import TB
from trainledger.facts.dtypes import FP32
from trainledger.facts.host_memory import PROCESS, SECOND, Load
from trainledger.model.build import model_of

MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}


def moments(**sections: Any) -> dict[str, HostMoment]:
    return {one.name: one for one in beside(estimate(plan_of(**sections))).host}


def part(moment: HostMoment, start: str) -> int:
    return sum(one.size.expected * one.count for one in moment.parts if one.name.startswith(start))


def test_eight_ranks_that_each_load_falcon_40b_in_fp32_take_1_28_tb() -> None:
    """ranks x P x bytes a node: 40e9 x 4 x 8, and 1.32 TB with the model's own count of 41.3e9."""
    plan = plan_of("falcon-40b", precision={"weights": "fp32", "compute": "fp32", "gradients": "fp32"})
    model = model_of(plan)
    copies = copies_of(way_of(plan).load, 8)
    assert copies == 8
    assert copies * FP32.bytes_of(40_000_000_000) == 1.28 * TB
    assert copies * loaded_bytes(plan, model) == 8 * 4 * 41_303_293_952 == pytest.approx(1.32 * TB, rel=0.002)


def test_a_node_too_small_for_every_rank_s_copy_is_named_by_its_host() -> None:
    """Of FSDP's shards the devices hold little; the host holds eight whole models unless one rank alone reads them."""
    sections = {"parallel": {"strategy": "fsdp2", "dp": 8}, "node": {"ranks": 8, "memory": "35GiB", "used": "1GiB"}}
    big = {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 12}
    fits = {"precision": {"weights": "fp32", "gradients": "fp32", "compute": "bf16"}, "batch": {"sequence": 16}}
    found = estimate(plan_of(big, **sections, **fits))
    assert found.verdict.outcome in ("tight", "does-not-fit")
    reason = next(one for one in found.verdict.reasons if not one.startswith("device memory"))
    assert reason.startswith("host memory, load: ")
    assert found.verdict.margin is not None
    assert found.verdict.margin > 0  # of the device
    sections["parallel"] = {**sections["parallel"], "options": {"cpu_ram_efficient_loading": True}}
    assert estimate(plan_of(big, **sections, **fits)).verdict.outcome == "fits"


@pytest.mark.parametrize(
    ("sections", "load"),
    [
        ({}, Load.ALL),
        ({"parallel": {"strategy": "ddp", "dp": 8}}, Load.ALL),
        ({"parallel": {"strategy": "fsdp1", "dp": 8}}, Load.ALL),
        ({"parallel": {"strategy": "fsdp2", "dp": 8, "options": {"cpu_ram_efficient_loading": True}}}, Load.FIRST),
        ({"parallel": {"strategy": "zero3", "dp": 8}, "precision": MIXED}, Load.ZERO),
        (
            {"parallel": {"strategy": "zero3", "dp": 8, "options": {"zero_init": False}}, "precision": MIXED},
            Load.ALL,
        ),
        (
            {
                "parallel": {"strategy": "zero3", "dp": 8},
                "precision": MIXED,
                "stack": {"versions": {"torch": "2.3.0", "transformers": "4.40.2"}},
            },
            Load.MAPPED,
        ),
        ({"stack": {"options": {"device_map": "auto"}}}, Load.MAPPED),
    ],
)
def test_ways_to_load(sections: dict[str, Any], load: Load) -> None:
    assert way_of(plan_of(**sections)).load is load


def test_older_releases_hold_a_file_beside_the_model() -> None:
    stack = {"versions": {"torch": "2.3.0", "transformers": "4.40.2"}, "options": {}}
    older = moments(stack=stack)["load"]
    newer = moments()["load"]
    low = moments(stack={**stack, "options": {"low_cpu_mem_usage": True}})["load"]
    size = loaded_bytes(plan_of(), model_of(plan_of()))
    assert size < SECOND.file_bytes
    assert older.band.high - newer.band.high == size
    assert low.band == newer.band == moments(stack={"options": {"low_cpu_mem_usage": False}})["load"].band


def test_offloaded_states_are_there_for_every_rank_of_the_node() -> None:
    sections: dict[str, Any] = {
        "precision": MIXED, "offload": {"optimizer": "cpu"},
        "parallel": {"strategy": "zero3", "dp": 16, "options": {"offload_optimizer": {"pin_memory": False}}},
        "optimizer": {"implementation": "cpu"},
    }  # fmt: skip
    answer = estimate(plan_of(**sections, node={"ranks": 4, "memory": "1TiB"}))
    steps = {one.name: one for one in beside(answer).host}["steps"]
    states = steps.band.expected - 4 * round(PROCESS.expected)
    assert states == 4 * sum(line.unit * copies for line, copies in answer.ledger.host)
    assert states == pytest.approx(4 * 18 * answer.parameters.total / 16, rel=0.01)


def test_workers_hold_batches() -> None:
    options = {"dataloader_num_workers": 4, "dataloader_prefetch_factor": 3}
    found = moments(stack={"options": options}, batch={"micro_batch": 2, "sequence": 512})["steps"]
    assert part(found, "batches") == 4 * 3 * (2 * 512 * 8 * 3)
    assert {one.count for one in found.parts if "worker" in one.name} == {4}


def test_a_whole_state_dict_comes_together_on_one_rank() -> None:
    parallel: dict[str, Any] = {"strategy": "fsdp2", "dp": 8, "options": {"state_dict_type": "FULL_STATE_DICT"}}
    count = estimate(plan_of()).parameters.total
    assert part(moments(parallel=parallel)["save"], "whole state dict") == 4 * count  # the two moments, in bf16
    parallel["options"] = {"state_dict_type": "SHARDED_STATE_DICT"}
    assert part(moments(parallel=parallel)["save"], "whole state dict") == 0


TUNE: dict[str, Any] = {"framework": "torchtune", "versions": {"torch": "2.6.0", "torchtune": "0.6.1"}, "loss": None}
LIT: dict[str, Any] = {"framework": "litgpt", "versions": {"torch": "2.13.0", "litgpt": "0.5.13"}, "loss": None}
FACTORS = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}


@pytest.mark.parametrize(
    ("stack", "strategy", "adapter", "copies"),
    [
        (TUNE, "fsdp2", None, 6),  # weights and states are gathered at once
        (TUNE, "none", FACTORS, 2),  # what is merged is merged on the host
        (TUNE, "none", None, 0),
        (LIT, "none", None, 6),  # Fabric makes the whole file in memory first
        (LIT, "none", FACTORS, 2),
    ],
)
def test_what_recipes_have_on_rank_0_before_they_write_it(
    stack: dict[str, Any], strategy: str, adapter: dict[str, Any] | None, copies: int
) -> None:
    parallel = {"strategy": strategy, "dp": 4 if strategy == "fsdp2" else 1}
    sections: dict[str, Any] = {"stack": stack, "parallel": parallel, "batch": {"sequence": 16}}
    count = estimate(plan_of(**sections)).parameters.total
    if adapter:
        sections["adapter"] = adapter
    assert part(moments(**sections)["save"], "checkpoint as rank 0 has it") == copies * count


def test_an_asynchronous_save_stages_what_a_rank_writes() -> None:
    parallel = {"strategy": "fsdp2", "dp": 8}
    answer = estimate(plan_of(parallel=parallel, save={"asynchronous": True}))
    found = beside(answer)
    staged = part({one.name: one for one in found.host}["save"], "copy of what a rank has of it")
    assert staged == 8 * found.checkpoint.rank_bytes
    assert staged == pytest.approx(6 * answer.parameters.total, rel=0.01)


def test_a_replica_stages_all_of_its_shards_whoever_writes_them() -> None:
    save = {"asynchronous": True, "format": "fsdp-sharded"}
    answer = estimate(plan_of(parallel={"strategy": "hsdp", "dp": 8, "shard": 4}, save=save))
    found = beside(answer).checkpoint
    assert found.staged == pytest.approx(6 * answer.parameters.total / 4, rel=0.01)
    assert found.rank_bytes < 0.6 * found.staged


def test_kept_logits_come_to_every_rank_s_host_in_fp32() -> None:
    evaluation = {"micro_batch": 4, "sequence": 128, "batches": 10, "prediction_loss_only": False}
    parallel = {"strategy": "ddp", "dp": 8}
    size = 10 * 8 * 4 * 128 * 1024 * 4
    found = moments(parallel=parallel, evaluation=evaluation)["evaluation"]
    assert part(found, "logits of the set") == 8 * size
    assert part(found, "the same while") == 0
    some = moments(parallel=parallel, evaluation={**evaluation, "accumulation": 2})["evaluation"]
    assert part(some, "the same while") == 8 * size
    assert "evaluation" not in moments(parallel=parallel, evaluation={"batches": 10})
    half = {"weights": "fp16", "compute": "fp16", "gradients": "fp16", "grad_scaler": False}  # numpy has no bf16
    assert part(moments(evaluation=evaluation, precision=half)["evaluation"], "logits of the set") == size // 8 // 2


def test_a_model_that_fsdp_raises_may_be_read_in_its_own_dtype() -> None:
    """Shards of fp32 for products of bf16: read in 16 bits where the checkpoint is and the release takes its dtype."""
    sections = {
        "precision": {"weights": "fp32", "gradients": "fp32", "compute": "bf16"},
        "parallel": {"strategy": "fsdp2", "dp": 4},
    }

    def read(model: dict[str, Any]) -> tuple[int, int, int]:
        answer = estimate(plan_of(model, **sections))
        load = next(one for one in beside(answer).host if one.name == "load")
        (whole,) = [one.size for one in load.parts if one.name.startswith("model as it is read")]
        count = answer.parameters.total
        return whole.low // count, whole.expected // count, whole.high // count

    assert read(LLAMA) == (0, 4, 4)
    assert read({**LLAMA, "dtype": "bfloat16"}) == (0, 0, 4)
    assert read({**LLAMA, "dtype": "float32"}) == (0, 0, 4)
    sections["stack"] = {"versions": {"torch": "2.6.0", "transformers": "4.49.0"}}
    assert read(LLAMA) == (2, 4, 4)
    assert read({**LLAMA, "dtype": "bfloat16"}) == (2, 4, 4)


MIXTRAL = {
    **LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "version", "low_cpu", "bounds"),
    [
        ("bfloat16", "5.24.0", None, (0, 0, 2)),
        ("bfloat16", "4.51.0", None, (0, 0, 2)),
        ("bfloat16", "4.49.0", None, (2, 2, 2)),
        ("bfloat16", "4.49.0", True, (0, 0, 2)),
        ("float32", "5.24.0", None, (2, 2, 2)),  # cast to bf16 as it is read
        (None, "5.24.0", None, (0, 2, 2)),
    ],
)
def test_parameters_that_are_not_cast_stay_in_the_mapped_file(
    dtype: str | None, version: str, low_cpu: bool | None, bounds: tuple[int, int, int]
) -> None:
    options = {} if low_cpu is None else {"low_cpu_mem_usage": low_cpu}
    stack = {"versions": {"torch": "2.13.0", "transformers": version}, "options": options}
    model = LLAMA if dtype is None else {**LLAMA, "dtype": dtype}
    answer = estimate(plan_of(model, stack=stack))
    load = next(one for one in beside(answer).host if one.name == "load")
    (size,) = [one.size for one in load.parts if one.name.startswith("model as it is read")]
    count = answer.parameters.total
    assert (size.low, size.expected, size.high) == tuple(bound * count for bound in bounds)


def test_experts_are_stacked_as_they_are_read() -> None:
    """Three matrices of four experts in three layers take memory of their own; the rest stays mapped."""
    answer = estimate(plan_of({**MIXTRAL, "dtype": "bfloat16"}))
    load = next(one for one in beside(answer).host if one.name == "load")
    (size,) = [one.size for one in load.parts if one.name.startswith("model as it is read")]
    assert size.low == size.expected == 2 * 3 * 4 * 3 * 256 * 640
    assert size.high == 2 * answer.parameters.total


@pytest.mark.parametrize(("tied", "load"), [(False, Load.MESH), (True, Load.ALL)])
def test_verl_builds_tied_models_on_every_rank(tied: bool, load: Load) -> None:
    roles = {"rollout": {"engine": {"memory_share": 0.5}}}
    plan = plan_of(
        {**LLAMA, "tie_word_embeddings": tied}, task="grpo", roles=roles, batch={"sequence": 16, "loss_tokens": 8},
        stack={"framework": "verl"}, parallel={"strategy": "fsdp2", "dp": 8},
    )  # fmt: skip
    assert way_of(plan).load is load


def test_paged_states_may_come_to_the_host() -> None:
    """Managed memory lies on the device while there is room: nothing of it at least, all of it at most."""
    steps = moments(optimizer={"name": "paged-adamw-8bit", "implementation": None})["steps"]
    (paged,) = [one.size for one in steps.parts if one.name.startswith("paged")]
    assert (paged.low, paged.expected) == (0, 0)
    count = estimate(plan_of()).parameters.total
    assert count < paged.high < 3 * count


@pytest.mark.parametrize(("strategy", "parts"), [("ddp", 1), ("fsdp1", 4), ("zero3", 4)])
def test_paged_states_are_a_ranks_own(strategy: str, parts: int) -> None:
    def paged(**parallel: Any) -> float:
        optimizer = {"name": "paged-adamw-32bit", "implementation": None}
        answer = estimate(plan_of("llama-3.2-1b", optimizer=optimizer, parallel=parallel))
        steps = next(one for one in beside(answer).host if one.name == "steps")
        return sum(one.size.high * one.count for one in steps.parts if one.name.startswith("paged"))

    whole = paged(strategy="none")
    assert paged(strategy=strategy, world=4) == pytest.approx(whole * 4 / parts, rel=0.02)
