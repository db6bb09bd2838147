"""Comparison: rows of every side, keys that differ, and differences that add up when they are made one at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plans import LLAMA
from trainledger.answer.changed import LEFT_OUT, Change, differing, planned, value_of, with_changes
from trainledger.answer.compare import compare, on_devices
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.show.compare import document, sections
from trainledger.show.estimate import View
from trainledger.show.table import plain

FIRST: dict[str, Any] = {
    "model": LLAMA,
    "task": "pretrain",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "bf16"},
    "optimizer": {"name": "adamw", "implementation": "foreach"},
    "batch": {"micro_batch": 1, "sequence": 512},
    "stack": {"framework": "transformers", "versions": {"torch": "2.13.0", "transformers": "5.24.0"}},
    "device": {"name": "a100-80gb"},
}
SECOND = with_changes(
    FIRST,
    [
        Change("batch.micro_batch", 4),
        Change("parallel.strategy", "fsdp2"),
        Change("parallel.dp", 4),
        Change("stack.recompute", {"kind": "full"}),
        Change("optimizer.implementation", LEFT_OUT),
    ],
)


def test_changes_leave_the_keys_as_they_were() -> None:
    before = json.dumps(FIRST)
    made = with_changes(FIRST, [Change("batch.micro_batch", 4), Change("stack.versions.torch", LEFT_OUT)])
    assert json.dumps(FIRST) == before
    assert value_of(made, "batch.micro_batch") == 4
    assert value_of(made, "stack.versions.torch") is LEFT_OUT
    assert value_of(made, "stack.versions.transformers") == "5.24.0"


def test_defaults_follow_a_change() -> None:
    plain_plan = planned(FIRST, [Change("optimizer.implementation", LEFT_OUT)])
    offloaded = planned(
        FIRST,
        [
            Change("optimizer.implementation", LEFT_OUT),
            Change("stack.framework", "deepspeed"),
            Change("parallel.strategy", "zero2"),
            Change("parallel.dp", 2),
            Change("offload.optimizer", "cpu"),
        ],
    )
    assert plain_plan.optimizer.implementation != "cpu"
    assert offloaded.optimizer.implementation == "cpu"


def test_a_section_that_one_plan_lacks_is_one_difference() -> None:
    tuned = with_changes(FIRST, [Change("adapter", {"kind": "lora", "r": 8, "targets": ["q_proj"]})])
    wider = with_changes(tuned, [Change("adapter.r", 16)])
    assert differing(FIRST, tuned) == ("adapter",)
    assert differing(with_changes(FIRST, [Change("adapter", None)]), FIRST) == ()
    assert differing(tuned, wider) == ("adapter.r",)


def test_what_the_steps_moved_adds_up() -> None:
    found = compare([("one", FIRST), ("four", SECOND)])
    first, second = (side.answer.peak for side in found.sides)
    (walk,) = found.walks
    assert sum(step.allocated for step in walk.steps) == second.allocated.expected - first.allocated.expected
    assert sum(step.reserved for step in walk.steps) == second.reserved.expected - first.reserved.expected
    assert walk.steps[-1].moments[1] == second.moment
    for step in walk.steps:
        assert sum(size for _, size in step.accounts) == step.allocated


def test_every_step_of_a_walk_is_a_plan_that_estimates_alike() -> None:
    found = compare([("one", FIRST), ("four", SECOND)])
    held, peak = FIRST, found.sides[0].answer.peak.allocated.expected
    for step in found.walks[0].steps:
        held = with_changes(held, [Change(path, value_of(SECOND, path)) for path, _, _ in step.keys])
        peak += step.allocated
        assert estimate(planned(held)).peak.allocated.expected == peak


def test_keys_that_make_no_plan_alone_go_together() -> None:
    first = with_changes(FIRST, [Change("parallel", {"strategy": "ddp", "dp": 2, "world": 2})])
    second = with_changes(first, [Change("parallel.dp", 4), Change("parallel.world", 4)])
    (step,) = compare([("a", first), ("b", second)]).walks[0].steps
    assert {path for path, _, _ in step.keys} == {"parallel.dp", "parallel.world"}


def test_equal_plans_have_nothing_between_them() -> None:
    found = compare([("a", FIRST), ("b", dict(FIRST))])
    assert found.keys == ()
    assert found.walks[0].steps == ()
    assert all(delta == 0 for row in (*found.amounts, *found.accounts, *found.moments) for delta in row.deltas)


def test_a_key_left_out_that_has_its_value_by_default_moves_nothing() -> None:
    second = with_changes(FIRST, [Change("stack.attention", "sdpa")])
    assert compare([("a", FIRST), ("b", second)]).walks[0].steps == ()


def test_rows_have_one_value_for_each_side_and_add_up() -> None:
    found = compare([("a", FIRST), ("b", SECOND), ("c", FIRST)])
    for number, side in enumerate(found.sides):
        held = [row.values[number] or 0 for row in found.accounts]
        assert sum(held) == side.answer.peak.allocated.expected
        assert max(row.values[number] or 0 for row in found.moments) == side.answer.peak.allocated.expected
    assert [walk.to for walk in found.walks] == ["b", "c"]


def test_on_devices_names_each_once_and_refuses_unknown_ones() -> None:
    found = on_devices(FIRST, ["A100-80GB", "t4", "a100-80gb"])
    assert [name for name, _ in found] == ["a100-80gb", "t4"]
    with pytest.raises(InputError, match="--devices"):
        on_devices(FIRST, ["no-such-card"])


def test_one_plan_is_not_compared() -> None:
    with pytest.raises(InputError, match="two plans"):
        compare([("a", FIRST)])


def test_a_plan_that_cannot_be_estimated_is_named() -> None:
    wrong = with_changes(FIRST, [Change("task", "grpo")])
    with pytest.raises(InputError, match=r"second\.yaml"):
        compare([("first.yaml", FIRST), ("second.yaml", wrong)])


def test_text_and_json_say_the_same() -> None:
    found = compare([("a", FIRST), ("b", SECOND)])
    data, text = document(found), "\n".join(plain(one) for one in sections(found, View("B")))
    for row in data["amounts"]:
        assert all(f"{value:,} B" in text for value in row["bytes"] if value is not None)
    for step in data["steps"][0]["steps"]:
        assert all(key["path"] in text for key in step["keys"])
    json.dumps(data)
