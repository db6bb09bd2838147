"""Reading plans: everything wrong at once, each with its path, what is allowed and the nearest valid key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.facts.plan_words import TRIED
from trainledger.plan.problems import known_paths, unknown_key
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve
from trainledger.plan.schema import as_mapping

SAMPLE = Path(__file__).parents[1] / "data" / "records_sample.jsonl"
MINIMAL: dict[str, Any] = {"model": {"model_type": "llama"}, "batch": {"micro_batch": 1, "sequence": 8}}


def plan_with(**sections: Any) -> dict[str, Any]:
    return {**MINIMAL, **sections}


def problems(data: object) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        read_plan(data)
    return {problem.path: str(problem) for problem in caught.value.problems}


def test_a_minimal_plan_keeps_what_was_left_out_distinguishable() -> None:
    plan = read_plan(MINIMAL)
    assert plan.model_fields_set == {"model", "batch"}
    assert as_mapping(plan) == MINIMAL


def test_all_problems_are_listed_at_once() -> None:
    found = problems(
        {
            "model": {"model_type": "llama"},
            "tasks": "sft",
            "batch": {"micro_batch": -1, "sequense": 5},
            "precision": {"weights": "bfloat16"},
            "optimizer": {"name": "adamww", "options": {"scale_parametr": True}},
            "parallel": {"world": 8, "dp": 3},
            "stack": {"versions": {"transfomers": "1", "torch": 2.1, "trl": "banana"}, "recompute": {"kind": "foll"}},
            "evaluation": {"micro_batch": 0},
            "device": 5,
        }
    )
    for path, words in {
        "tasks": "Did you mean task?",
        "batch.micro_batch": "from 1 to",
        "batch.sequense": "Did you mean sequence?",
        "batch.sequence": "missing",
        "precision.weights": "Did you mean bf16?",
        "optimizer.name": "Did you mean adamw?",
        "optimizer.options.scale_parametr": "Did you mean scale_parameter?",
        "parallel.world": "dp 3",
        "stack.versions.torch": "quotes",
        "stack.versions.trl": "Write for example 1.16.0",
        "stack.versions.transfomers": "Did you mean transformers?",
        "stack.recompute.kind": "Did you mean full?",
        "evaluation.micro_batch": "from 1 to",
        "device": "device's name",
    }.items():
        assert words in found[path], path


@pytest.mark.parametrize("value", ["two", 0, -1, 2.5, None, []])
def test_what_is_neither_true_nor_a_number_of_ranks_is_refused_under_its_key(value: object) -> None:
    found = problems(plan_with(parallel={"strategy": "fsdp2", "dp": 8, "reshard_after_forward": value}))
    assert list(found) == ["parallel.reshard_after_forward"]


@pytest.mark.parametrize("data", [None, [], [1], "text", 5, {}, True])
def test_what_is_no_plan_is_refused(data: object) -> None:
    assert problems(data)


def test_a_key_in_the_wrong_section_is_found_where_it_belongs() -> None:
    assert "Did you mean batch.micro_batch?" in problems(plan_with(micro_batch=1))["micro_batch"]


@pytest.mark.parametrize(
    "value, read",
    [(4, 4), ("4", 4), ("4k", 4000), (4e3, 4000), ("4e3", 4000)],
)
def test_counts_are_read_with_letters(value: object, read: int) -> None:
    assert read_plan(plan_with(batch={"micro_batch": 1, "sequence": value})).batch.sequence == read


@pytest.mark.parametrize(
    "value", [0, -1, 1.5, "1.5", True, None, "x", [], {}, float("nan"), float("inf"), 10**400, "9" * 5000]
)
def test_absurd_counts_are_refused(value: object) -> None:
    assert "batch.sequence" in problems(plan_with(batch={"micro_batch": 1, "sequence": value}))


@pytest.mark.parametrize("value, read", [("80GB", 80 * 10**9), ("80 GiB", 80 * 2**30), (8e9, 8 * 10**9)])
def test_sizes_are_read_in_both_units(value: object, read: int) -> None:
    device = read_plan(plan_with(device={"name": "x", "memory": value})).device
    assert device is not None
    assert device.memory == read


@pytest.mark.parametrize("value", [-5, 0, "80 XB", True, []])
def test_absurd_sizes_are_refused(value: object) -> None:
    assert "device.memory" in problems(plan_with(device={"memory": value}))


@pytest.mark.parametrize(
    "sections, path",
    [
        ({"parallel": {"world": 6, "tp": 4}}, "parallel.world"),
        ({"parallel": {"world": 8, "dp": 8, "pp": 2}}, "parallel.world"),
        ({"parallel": {"dp": 2, "ep": 3}}, "parallel.ep"),
        ({"parallel": {"dp": 4, "strategy": "fsdp2", "shard": 3}}, "parallel.shard"),
        ({"parallel": {"dp": 4, "strategy": "hsdp"}}, "parallel.shard"),
        (
            {"parallel": {"dp": 4, "strategy": "fsdp1", "options": {"sharding_strategy": "HYBRID_SHARD"}}},
            "parallel.shard",
        ),
        ({"parallel": {"vpp": 2}}, "parallel.vpp"),
        ({"parallel": {"schedule": "1f1b"}}, "parallel.schedule"),
        ({"parallel": {"dp": 2, "strategy": "none"}}, "parallel.strategy"),
        ({"batch": {"micro_batch": 1, "sequence": 8, "loss_tokens": 9}}, "batch.loss_tokens"),
        ({"batch": {"micro_batch": 2, "sequence": 8, "accumulation": 2, "global": 5}}, "batch.global"),
        ({"batch": {"micro_batch": 2, "sequence": 8, "global": 5}}, "batch.global"),
        ({"batch": {"micro_batch": 2, "sequence": 8, "expert_load": 0.5}}, "batch.expert_load"),
        ({"stack": {"recompute": {"kind": "full", "policy": "each layer"}}}, "stack.recompute.policy"),
        ({"stack": {"recompute": {"kind": "none", "reentrant": True}}}, "stack.recompute.reentrant"),
        ({"adapter": {"kind": "lora"}, "trainable": "all"}, "trainable"),
        ({"optimizer": {"name": "sgd", "states": {"second": "bf16"}}}, "optimizer.states.second"),
        ({"parallel": {"options": {"sub_group_size": "auto"}}}, "parallel.options.sub_group_size"),
        (
            {"parallel": {"options": {"offload_optimizer": {"devise": "cpu"}}}},
            "parallel.options.offload_optimizer.devise",
        ),
        ({"stack": {"env": {"NO_SUCH": "1"}}}, "stack.env.NO_SUCH"),
    ],
)
def test_keys_that_disagree_are_refused(sections: dict[str, Any], path: str) -> None:
    assert path in problems(plan_with(**sections))


def test_a_disagreement_names_both_sides() -> None:
    text = problems(plan_with(batch={"micro_batch": 2, "sequence": 8, "accumulation": 2, "global": 5}))["batch.global"]
    assert "global 5" in text
    assert "accumulation 2 = 4" in text


def test_strategies_that_are_not_estimated_yet_can_be_read() -> None:
    plan = read_plan(
        plan_with(parallel={"strategy": "megatron-fsdp", "dp": 8, "tp": 2, "options": {"cp_comm_type": "a2a"}})
    )
    assert plan.parallel.options == {"cp_comm_type": "a2a"}


def test_null_means_not_known_where_the_format_says_so() -> None:
    plan = read_plan(
        plan_with(stack={"attention": None, "recompute": None, "loss": None, "compile": None}, precision=None)
    )
    assert plan.stack.model_fields_set == set()
    assert "precision" not in plan.model_fields_set


def test_a_name_with_a_dot_is_no_name_within_a_map() -> None:
    """`offload_optimizer.pin_memory: false` as one key passed, and nothing read it."""
    told = problems(plan_with(parallel={"options": {"offload_optimizer.pin_memory": False}}))
    (said,) = told.values()
    assert said.endswith("Write offload_optimizer: {pin_memory: false}.")


def test_options_are_read_by_their_kind() -> None:
    options = {"reduce_bucket_size": "5e8", "offload_optimizer": {"device": "cpu"}}
    plan = read_plan(plan_with(parallel={"options": options}, stack={"env": {"NVTE_FUSED_ATTN": 0}}))
    assert plan.parallel.options == {"reduce_bucket_size": 5 * 10**8, "offload_optimizer": {"device": "cpu"}}
    assert plan.stack.env == {"NVTE_FUSED_ATTN": "0"}
    assert options["reduce_bucket_size"] == "5e8"


def check_records(path: Path) -> int:
    count = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        data = json.loads(line).get("plan")
        if data is not None:
            plan = read_plan(data)
            assert read_plan(as_mapping(plan)) == plan
            resolved, _ = resolve(plan)
            assert resolve(resolved) == (resolved, ())
            count += 1
    return count


def test_sample_records_parse_and_resolve() -> None:
    assert check_records(SAMPLE) == 12


@pytest.mark.skipif("TRAINLEDGER_RECORDS" not in os.environ, reason="TRAINLEDGER_RECORDS names no folder of records")
def test_every_record_parses_and_resolves() -> None:
    files = sorted(Path(os.environ["TRAINLEDGER_RECORDS"]).glob("*.jsonl"))
    assert sum(map(check_records, files)) > 0


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["bf16", "full", "8e9"])
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def plans(draw: st.DrawFn) -> object:
    """A valid plan with some of its keys overwritten by anything."""
    data: dict[str, Any] = json.loads(json.dumps(MINIMAL))
    for path in draw(st.lists(st.sampled_from(known_paths()), max_size=6)):
        part: Any = data
        *outer, last = path.split(".")
        for key in outer:
            part = part.setdefault(key, {}) if isinstance(part, dict) else {}
        if isinstance(part, dict):
            part[last] = draw(trees)
    return data


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans() | trees)
def test_anything_is_read_or_refused_and_never_breaks(data: object) -> None:
    try:
        plan = read_plan(data)
    except InputError as error:
        listed = error.problems
    else:
        resolve(plan)
        return
    assert listed
    assert all(str(problem) for problem in listed)


def test_the_key_that_is_offered_is_of_the_same_section() -> None:
    found = problems(plan_with(roles={"rollout": {"memory_share": 1}}))
    assert "Did you mean roles.rollout.engine.memory_share?" in found["roles.rollout.memory_share"]


@pytest.mark.parametrize("lengths", [[], {"median": 900, "longest": 65}, {"padded": True, "packing": "packed"}])
def test_lengths_without_a_sense_are_refused(lengths: object) -> None:
    assert "lengths" in problems(plan_with(lengths=lengths))


def test_a_limit_of_checkpoints_counts_checkpoints() -> None:
    assert "a whole number of checkpoints" in problems(plan_with(save={"limit": 0}))["save.limit"]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("adapter.rank", "adapter.r"),
        ("adapter.lora_alpha", "adapter.options.lora_alpha"),
        ("adapter.alpha", "adapter.options.lora_alpha"),
        ("adapter.target_module", "adapter.targets"),
        ("batch.per_device_train_batch_size", "batch.micro_batch"),
        ("batch.sequense", "sequence"),
        ("parallel.tensor_parallel_size", "parallel.tp"),
        ("gradient_checkpointing", "stack.recompute"),
        ("framework", "stack.framework"),
        ("modl", "model"),
    ],
)
def test_an_unknown_key_is_offered_what_it_means(path: str, key: str) -> None:
    assert unknown_key(tuple(path.split("."))).fix == f"Did you mean {key}?"


def test_every_word_that_is_tried_means_a_key_of_the_plan() -> None:
    free = ("model", "stack.versions")
    assert [row.key for row in TRIED if row.key not in known_paths() and row.key.rpartition(".")[0] not in free] == []
