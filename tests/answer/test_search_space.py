"""Every candidate of a search is a plan that the program accepts, and what it leaves out is not one."""

from __future__ import annotations

import random

import pytest

from tests.answer.search_goals import EXPERTS, SMALL, small, template
from trainledger.answer.check import check, check_model
from trainledger.answer.search_goal import goal_of, parse_devices, plan_of
from trainledger.answer.search_layout import balanced, written
from trainledger.answer.search_space import grid_of
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.plan.degrees import degrees, global_batch
from trainledger.plan.stages import split_of, stages

CASES = [
    ("megatron", SMALL),
    ("megatron", EXPERTS),
    ("torchtitan", SMALL),
    ("transformers", SMALL),
    ("deepspeed", SMALL),
]


@pytest.mark.parametrize(
    ("framework", "model"), CASES, ids=lambda one: one if isinstance(one, str) else one["model_type"]
)
def test_every_candidate_validates(framework: str, model: dict[str, object]) -> None:
    goal = small(framework, model)
    grid = grid_of(goal)
    rows = range(len(grid)) if len(grid) < 100 else random.Random(0).sample(range(len(grid)), 100)
    for row in rows:
        one = grid.candidate(row)
        plan = plan_of(goal, one)
        check(plan)
        check_model(plan, model_of(plan))
        assert degrees(plan).world == goal.devices, one
        assert global_batch(plan) == goal.global_batch, one


def test_no_candidate_is_there_twice() -> None:
    grid = grid_of(small())
    assert len({grid.candidate(row) and repr(grid.candidate(row)) for row in range(len(grid))}) == len(grid)


def test_degrees_that_do_not_divide_are_left_out() -> None:
    grid = grid_of(small())
    assert {int(one) for one in grid.column("tp")} == {1, 2, 4, 8}  # eight heads; key heads are repeated
    assert {int(one) for one in grid_of(small(model=EXPERTS)).column("ep")} == {1, 2, 4, 8}
    assert {int(one) for one in grid.column("ep")} == {1}


def test_an_impossible_batch_is_named() -> None:
    with pytest.raises(InputError, match="no legal plan"):
        grid_of(goal_of(template(SMALL, "transformers"), "8xrtx4090", 3, 1024))


@pytest.mark.parametrize("text", ["h100", "0xh100-80gb", "8x", "x"])
def test_devices_are_a_count_and_a_name(text: str) -> None:
    with pytest.raises(InputError, match="64xh100-80gb"):
        parse_devices(text)


def test_more_devices_than_a_plan_may_have_are_refused() -> None:
    with pytest.raises(InputError, match="at most 16,777,216 ranks"):
        parse_devices("99999999999xh100-80gb")


def test_a_device_of_unknown_speed_is_refused() -> None:
    with pytest.raises(InputError, match="speed"):
        goal_of(template(SMALL), "8xp100-16gb", 8, 1024)


@pytest.mark.parametrize(("layers", "mtp", "count"), [(61, 1, 32), (126, 0, 64), (7, 0, 4), (5, 1, 7)])
def test_a_balanced_layout_is_one_that_megatron_takes(layers: int, mtp: int, count: int) -> None:
    keys = {**SMALL, "num_hidden_layers": layers}
    plan = plan_of(small(), grid_of(small()).candidate(0))
    text = balanced(layers, mtp, count)
    options = {"pipeline_model_parallel_layout": text}
    wide = plan.model_copy(
        update={"model": keys, "parallel": plan.parallel.model_copy(update={"pp": count, "options": options})}
    )
    found = stages(split_of(wide, layers, mtp))
    sizes = [one.layers + one.embedding + one.mtp + one.loss for one in found]
    assert sum(one.layers for one in found) == layers
    assert max(sizes) - min(sizes) <= 1


def test_too_many_stages_have_no_layout() -> None:
    assert balanced(2, 0, 5) is None
    assert written((3, 2, 2, 0), 1) == "Ettt|(tt|)*2mL"
