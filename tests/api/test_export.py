"""`trainledger.export`: the library's way to a framework's files."""

from __future__ import annotations

from pathlib import Path

import pytest

import trainledger
from tests.plans import LLAMA

PLAN = {"model": LLAMA, "task": "sft", "batch": {"micro_batch": 2, "sequence": 512}}


def test_a_plan_becomes_files() -> None:
    found = trainledger.export(PLAN, "trl", batch__micro_batch=3)
    assert "per_device_train_batch_size: 3" in dict(found.files)["trl.yaml"]
    assert found.to_dict()["to"] == "trl"


def test_a_runs_own_files_become_another_formats(tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text("base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nbf16: true\n", encoding="utf-8")
    for given in (str(path), path, [path]):
        text = dict(trainledger.export(given, "llama-factory").files)["llama-factory.yaml"]
        assert "cutoff_len: 512" in text
        assert "model_name_or_path: Qwen/Qwen3-0.6B" in text


def test_an_estimate_takes_a_runs_own_files_too(tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text("base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nadaptor: lora\n", encoding="utf-8")
    found = trainledger.estimate([path], device="h100-80gb")
    assert [one.path for one in found.draft.unknown] == ["adaptor"]


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(trainledger.InputError, match=r"parallel\.strategy"):
        trainledger.export(PLAN, "deepspeed")
