"""The exporter that stands for a run's files, and what it says of changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.importers.test_changed_lines import AXOLOTL, FACTORY, HALVED, MEGATRON, TITAN, TRAINER, TUNE
from trainledger.answer.changed import Change
from trainledger.importers.draft import Draft
from trainledger.importers.exported_lines import Exporter, same_key, way_of
from trainledger.importers.outside import read_any


def draft(folder: Path, name: str, data: Any) -> Draft:
    path = folder / name
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return read_any([str(path)])


@pytest.mark.parametrize(
    ("name", "data", "to"),
    [
        ("run.yaml", AXOLOTL, "axolotl"), ("run.yaml", FACTORY, "llama-factory"), ("run.yaml", TUNE, "torchtune"),
        ("run.toml", TITAN, "torchtitan"), ("run.sh", MEGATRON, "megatron"), ("run.yaml", TRAINER, "trl"),
    ],
)  # fmt: skip
def test_files_have_their_exporter(tmp_path: Path, name: str, data: Any, to: str) -> None:
    way = way_of(draft(tmp_path, name, data))
    assert way is not None
    assert way.to == to


def test_a_plan_has_none(tmp_path: Path) -> None:
    assert way_of(draft(tmp_path, "plan.yaml", "model: llama-3.2-1b\nbatch: {micro_batch: 1, sequence: 64}\n")) is None


def exporter(given: Draft) -> Exporter:
    way = way_of(given)
    assert way is not None
    return Exporter(given, way)


def test_what_a_change_comes_to_is_what_differs(tmp_path: Path) -> None:
    found = exporter(draft(tmp_path, "run.yaml", TRAINER)).keys(HALVED)
    assert found is not None
    keys, left = found
    assert [(key.name, key.value, key.was) for key in keys] == [
        ("per_device_train_batch_size", 4, 8),
        ("gradient_accumulation_steps", 4, 2),
    ]
    assert not left


def test_what_no_key_says_is_left(tmp_path: Path) -> None:
    within = Change("optimizer.in_backward", True)
    found = exporter(draft(tmp_path, "run.yaml", TRAINER)).keys((within, *HALVED))
    assert found is not None
    assert found[1] == (within,)


def test_changes_that_cannot_be_said_together_are_said_one_by_one(tmp_path: Path) -> None:
    given = exporter(draft(tmp_path, "run.yaml", TUNE))
    unknown = Change("optimizer.name", "adafactor")
    assert given.keys((unknown, *HALVED)) is None
    found = given.each((unknown, *HALVED))
    assert found is not None
    assert [key.name for key in found[0]] == ["batch_size", "gradient_accumulation_steps"]
    assert found[1] == (unknown,)


def test_a_file_of_deepspeed_s_own_has_its_keys(tmp_path: Path) -> None:
    zero = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(zero, indent=1), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**AXOLOTL, "deepspeed": "ds.json"}), encoding="utf-8")
    given = read_any([str(tmp_path / "run.yaml")], ["parallel.world=4"])
    found = exporter(given).keys((Change("parallel.strategy", "zero3"),))
    assert found is not None
    assert [(key.file.rpartition("/")[2], key.name, key.value, key.was) for key in found[0]] == [
        ("ds.json", "zero_optimization.stage", 3, 2)
    ]


def test_keys_of_one_section_are_one_change_s() -> None:
    assert same_key("stack.recompute.kind", "stack.recompute")
    assert same_key("parallel", "parallel.tp")
    assert not same_key("parallel.tp", "parallel.tp_size")
    assert not same_key("", "parallel")
