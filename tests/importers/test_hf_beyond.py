"""A Trainer's arguments beyond the step become the plan's save section and the loader's options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainledger.importers.outside import read_any
from trainledger.plan.schema import Plan

ARGUMENTS = {"output_dir": "out", "per_device_train_batch_size": 1, "model_name_or_path": "qwen2.5-0.5b", "bf16": True}


def plan_of(tmp_path: Path, **more: Any) -> Plan:
    file = tmp_path / "arguments.json"
    file.write_text(json.dumps({**ARGUMENTS, "max_seq_length": 512, **more}), encoding="utf-8")
    return read_any([str(file)]).plan


def test_checkpoints_and_workers(tmp_path: Path) -> None:
    more = {"save_total_limit": 2, "save_only_model": True, "dataloader_num_workers": 4, "low_cpu_mem_usage": True}
    plan = plan_of(tmp_path, **more, dataloader_prefetch_factor=3)
    assert plan.save is not None
    assert (plan.save.limit, plan.save.optimizer) == (2, False)
    wanted = ("dataloader_num_workers", "dataloader_prefetch_factor", "low_cpu_mem_usage")
    assert [plan.stack.options[name] for name in wanted] == [4, 3, True]


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ({"load_best_model_at_end": True}, 2),
        ({"load_best_model_at_end": False}, 1),
        ({"save_strategy": "no"}, None),
        ({"save_strategy": False}, None),
    ],
)
def test_the_best_checkpoint_stays_beside_the_last(tmp_path: Path, more: dict[str, Any], limit: int | None) -> None:
    save = plan_of(tmp_path, save_total_limit=1, **more).save
    assert (save.limit if save else None) == limit


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_no_limit_is_no_section(tmp_path: Path, limit: int | None) -> None:
    plan = plan_of(tmp_path, save_total_limit=limit, save_only_model=False, dataloader_num_workers=0)
    assert plan.save is None
    assert "dataloader_num_workers" not in plan.stack.options


@pytest.mark.parametrize(
    ("given", "rows", "steps"),
    [
        ({"eval_strategy": "steps"}, 8, None),
        ({"evaluation_strategy": "epoch", "per_device_eval_batch_size": 4}, 4, None),
        ({"eval_on_start": True, "eval_accumulation_steps": 2}, 8, 2),
    ],
)
def test_an_evaluation_has_its_own_batches(tmp_path: Path, given: dict[str, Any], rows: int, steps: int | None) -> None:
    """Eight sequences where the arguments say no number, however few are trained on."""
    found = plan_of(tmp_path, **given).evaluation
    assert found is not None
    assert (found.micro_batch, found.accumulation, found.prediction_loss_only) == (rows, steps, True)


@pytest.mark.parametrize("given", [{}, {"eval_strategy": "no"}, {"per_device_eval_batch_size": 4}])
def test_without_a_strategy_nothing_is_evaluated(tmp_path: Path, given: dict[str, Any]) -> None:
    assert plan_of(tmp_path, **given).evaluation is None
