"""Degrees that cannot be: each rule of Megatron-Core and torchtitan, all at once, with the nearest that can."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.check_mesh import mesh_problems
from trainledger.base.problems import InputError
from trainledger.plan.read import read_plan
from trainledger.plan.schema import Plan

DENSE = {
    "model_type": "megatron-gpt", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336,
}  # fmt: skip
MOE = {
    "model_type": "megatron-gpt", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "num_experts": 24, "num_experts_per_tok": 2, "moe_intermediate_size": 1408,
}  # fmt: skip


def plan_of(model: dict[str, Any], framework: str = "megatron", sequence: int = 4096, **parallel: Any) -> Plan:
    batch = {"micro_batch": 1, "sequence": sequence, "accumulation": 8}
    return read_plan({"model": model, "batch": batch, "parallel": parallel, "stack": {"framework": framework}})


def found(plan: Plan) -> list[str]:
    return [str(problem) for problem in mesh_problems(plan)]


@pytest.mark.parametrize(
    ("model", "parallel"),
    [
        (DENSE, {}),
        (DENSE, {"tp": 8, "sp": True, "cp": 2, "pp": 4, "vpp": 2, "dp": 2}),
        (DENSE, {"tp": 16, "dp": 2}),  # more ranks than key-value heads, which divide them
        (MOE, {"tp": 4, "dp": 4, "ep": 8, "etp": 2}),
        (MOE, {"tp": 2, "dp": 4, "pp": 2, "ep": 4}),
        (DENSE, {"tp": 2, "cp": 2, "pp": 2, "options": {"use_tp_pp_dp_mapping": True}}),
        (DENSE, {"pp": 4, "dp": 2, "options": {"decoder_first_pipeline_num_layers": 5}}),
        (DENSE, {"pp": 2, "etp": 4, "dp": 4}),  # without experts etp moves nothing
    ],
)
def test_what_megatron_runs_is_no_problem(model: dict[str, Any], parallel: dict[str, Any]) -> None:
    assert found(plan_of(model, **parallel)) == []


@pytest.mark.parametrize(
    ("model", "parallel", "messages"),
    [
        (
            DENSE,
            {"tp": 12},
            [
                "parallel.tp: 12 does not divide the attention heads (32); a divisor of 32 is needed. The nearest that "
                "can is 8.",
                "parallel.tp: 12 and 8 key-value heads; one must divide the other. The nearest that can is 8.",
                "parallel.tp: 12 does not divide the feed-forward width (14336); a divisor of 14336 is needed. The "
                "nearest that can is 8.",
            ],
        ),
        (
            DENSE,
            {"tp": 8, "cp": 3, "sp": True},
            [
                "batch.sequence: 4096 is no multiple of 2 x cp 3; a multiple of 6 is needed. The nearest that can is "
                "4104.",
                "batch.sequence: 4096 is no multiple of cp 3 x tp 8, over which sequences are sharded; a multiple of "
                "24 is needed. The nearest that can is 4104.",
            ],
        ),
        (
            DENSE,
            {"cp": 16, "tp": 4, "options": {"cp_comm_type": "ulysses"}},
            [
                "parallel.cp: 16 does not divide the attention heads of a tensor-parallel rank (8); a divisor of 8 is "
                "needed. The nearest that can is 2.",
                "parallel.cp: 16 does not divide the key-value heads of a tensor-parallel rank (2); a divisor of 2 is "
                "needed. The nearest that can is 2.",
            ],
        ),
        (
            DENSE,
            {"dp": 4, "ep": 2},
            ["parallel.ep: found 2; the model has no experts to spread. The nearest that can is 1."],
        ),
        (
            MOE,
            {"dp": 16, "ep": 16},
            ["parallel.ep: 16 does not divide the experts (24); a divisor of 24 is needed. The nearest that can is 8."],
        ),
        (
            MOE,
            {"tp": 4, "dp": 2, "ep": 8},
            [
                "parallel.ep: ep 8 x etp 4 does not divide the 8 ranks of a pipeline stage; experts are spread over "
                "these ranks: a part of 8 is needed. The nearest that can is 2.",
            ],
        ),
        (
            MOE,
            {"dp": 6, "tp": 1, "etp": 3},
            ["parallel.etp: 3 does not divide the experts' width (1408); a divisor of 1408 is needed. The nearest that "
             "can is 2."],
        ),
        (
            MOE,
            {"tp": 2, "pp": 2, "dp": 4, "ep": 4, "etp": 1, "options": {"use_tp_pp_dp_mapping": True}},
            ["parallel.options.use_tp_pp_dp_mapping: true, but experts have 2 data-parallel ranks and dense layers 4; "
             "with a pipeline the two must be equal. Leave it out, or set ep x etp to tp x cp = 2."],
        ),
        (
            DENSE,
            {"pp": 3, "vpp": 2},
            [
                "parallel.pp: found 3 for 32 layers; a divisor of 32 is needed. The nearest that can is 2.",
                "batch.accumulation: found 8 micro-batches with interleaved and pp 3; the rest over groups of 3 must "
                "be 0 or at least pp 3. The nearest that can is 9.",
            ],
        ),
    ],
)  # fmt: skip
def test_what_megatron_refuses(model: dict[str, Any], parallel: dict[str, Any], messages: list[str]) -> None:
    assert found(plan_of(model, **parallel)) == messages


def test_all_are_refused_together() -> None:
    plan = plan_of(MOE, sequence=4095, tp=6, pp=5, cp=2, dp=4, ep=5)
    assert {text.split(":")[0] for text in found(plan)} == {
        "parallel.tp", "parallel.ep", "parallel.pp", "batch.sequence",
    }  # fmt: skip


TITAN_MOE = {**MOE, "num_experts": 64}


@pytest.mark.parametrize(
    ("parallel", "messages"),
    [
        ({"tp": 8, "dp": 4, "ep": 32}, []),
        ({"tp": 8, "dp": 4, "ep": 4, "etp": 8}, []),
        ({"tp": 4, "dp": 4, "pp": 2, "schedule": "1f1b"}, []),
        ({"tp": 16, "dp": 1}, ["parallel.tp: 16 does not divide the key-value heads (8)"]),
        ({"tp": 4, "dp": 4, "ep": 2, "etp": 2}, ["parallel.etp: found 2 with tp 4; experts are sharded over"]),
        (
            {"strategy": "hsdp", "dp": 8, "shard": 2, "ep": 4},
            ["parallel.ep: ep 4 x etp 1 does not divide dp_shard x cp x tp = 2; experts are spread over these ranks. "
             "The nearest that can is 2."],
        ),
        ({"dp": 1, "pp": 16, "vpp": 3, "schedule": "interleaved"}, ["parallel.vpp: 48 stages for 32 layers"]),
        ({"dp": 1, "pp": 16, "schedule": "1f1b"}, ["batch.accumulation: found 8 micro-batches with 1f1b and pp 16"]),
    ],
)  # fmt: skip
def test_torchtitans_rules(parallel: dict[str, Any], messages: list[str]) -> None:
    texts = found(plan_of(TITAN_MOE, "torchtitan", **parallel))
    assert len(texts) == len(messages)
    for text, message in zip(texts, messages, strict=True):
        assert message in text


def test_other_frameworks_have_no_rules_here() -> None:
    assert found(plan_of(DENSE, "transformers", tp=12)) == []


def test_the_world_names_the_nearest_that_can() -> None:
    with pytest.raises(InputError) as raised:
        plan_of(DENSE, world=30, tp=8)
    assert "The nearest that can is 32." in str(raised.value)
    with pytest.raises(InputError) as raised:
        plan_of(MOE, dp=8, ep=6)
    assert "The nearest that can is 4." in str(raised.value)


def test_instances_of_the_optimizer_divide_the_data_parallel_ranks() -> None:
    (message,) = found(plan_of(DENSE, dp=8, options={"num_distributed_optimizer_instances": 3}))
    assert message == (
        "parallel.options.num_distributed_optimizer_instances: 3 does not divide the data-parallel ranks (8); a "
        "divisor of 8 is needed. The nearest that can is 2."
    )


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev"])
def test_a_schedule_that_megatron_does_not_have_is_refused_by_name(schedule: str) -> None:
    (message,) = found(plan_of(DENSE, "megatron-bridge", pp=2, schedule=schedule, vpp=1))
    assert message.startswith(f"parallel.schedule: found '{schedule}' with megatron-bridge")


def test_a_plan_that_breaks_several_rules_lists_them_all() -> None:
    broken = {**MOE, "vocab_size": 1001, "num_hidden_layers": 31}
    paths = {
        one.split(":")[0]
        for one in found(plan_of(broken, "nemo", 4095, tp=5, sp=True, pp=2, cp=2, dp=5, ep=5, schedule="gpipe"))
    }
    assert paths >= {
        "parallel.tp", "batch.sequence", "parallel.ep", "model.vocab_size", "parallel.pp", "parallel.schedule",
    }  # fmt: skip
