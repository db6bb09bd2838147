"""What a search begins with: a name alone, or a plan whose other keys stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.rules import ROOT
from trainledger.answer.search_goal import goal_of, plan_of
from trainledger.answer.search_space import grid_of
from trainledger.base.problems import InputError
from trainledger.importers.search_template import template_of

PLAN = str(ROOT / "examples" / "llama-3.1-70b-megatron.yaml")
SHARDED = str(ROOT / "examples" / "llama-3.1-8b-fsdp2.yaml")


def test_a_name_takes_the_framework_s_usual_keys() -> None:
    found = template_of(["llama-3-8b"], ["batch.sequence=2048"], "torchtitan")
    assert found["stack"]["framework"] == "torchtitan"
    assert found["model"]["hidden_size"] == 4096
    assert goal_of(found, "8xh100-80gb").sequence == 2048


def test_a_plan_keeps_its_other_keys() -> None:
    goal = goal_of(template_of([PLAN], ["optimizer.grad_clip=0.5"]), "16xh100-80gb")
    assert (goal.global_batch, goal.sequence, goal.framework) == (128, 8192, "megatron")
    plan = plan_of(goal, grid_of(goal).candidate(0))
    assert plan.optimizer.grad_clip == 0.5
    assert plan.stack.versions["megatron-core"] == "0.19.2"
    assert plan.parallel.world == 16


def test_files_that_do_not_say_their_ranks_are_read_for_those_searched(tmp_path: Path) -> None:
    train, zero = tmp_path / "train.yaml", tmp_path / "zero3.json"
    train.write_text(
        "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 2\nmax_length: 512\n"
        "gradient_accumulation_steps: 4\n"
    )
    zero.write_text('{"zero_optimization": {"stage": 3}}')
    files = [str(train), str(zero)]
    goal = goal_of(template_of(files, devices="8xa100-80gb"), "8xa100-80gb")
    assert (goal.devices, goal.global_batch, goal.sequence) == (8, 64, 512)
    with pytest.raises(InputError, match=r"parallel\.world"):
        template_of(files)
    with pytest.raises(InputError, match="no_such"):
        template_of(files, ["optimizer.no_such=1"], devices="8xa100-80gb")


def test_what_followed_from_the_old_degrees_is_filled_in_anew() -> None:
    goal = goal_of(template_of([SHARDED]), "4xh100-80gb")
    grid = grid_of(goal)
    found = {plan_of(goal, grid.candidate(row)).parallel.strategy for row in range(len(grid))}
    assert {"fsdp2", "zero3", "ddp"} <= found


def test_what_is_no_model_and_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="llama"):
        template_of(["lama-3-8b"])
    with pytest.raises(InputError, match="framework"):
        template_of(["llama-3-8b"], (), "jax")
