"""Changes on the command line."""

from __future__ import annotations

import io
from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.document import Document
from trainledger.importers.plan_file import read_draft
from trainledger.importers.sets import apply_sets


def changed(data: Any, *sets: str) -> Any:
    return apply_sets(Document(data, {}), sets).data


def test_values_are_yaml_and_paths_are_made() -> None:
    data = {"batch": {"micro_batch": 1}}
    assert changed(
        data, "batch.micro_batch=4", "adapter.targets=[a, b]", "precision.master=null", "parallel.sp=true"
    ) == {
        "batch": {"micro_batch": 4},
        "adapter": {"targets": ["a", "b"]},
        "precision": {"master": None},
        "parallel": {"sp": True},
    }
    assert data == {"batch": {"micro_batch": 1}}


def test_versions_stay_texts() -> None:
    assert changed({}, "stack.versions.torch=2.10", "stack.versions.trl='0.13'")["stack"]["versions"] == {
        "torch": "2.10",
        "trl": "0.13",
    }


def test_bare_words_become_mappings() -> None:
    data = {"model": "llama-3.2-1b", "device": "h200", "node": "dgx-h200", "stack": {"recompute": "full"}}
    sets = ("model.num_hidden_layers=2", "device.memory=80GB", "node.nvme_bandwidth=20GB",
            "stack.recompute.reentrant=true")  # fmt: skip
    assert changed(data, *sets) == {
        "model": {"name": "llama-3.2-1b", "num_hidden_layers": 2},
        "device": {"name": "h200", "memory": "80GB"},
        "node": {"name": "dgx-h200", "nvme_bandwidth": "20GB"},
        "stack": {"recompute": {"kind": "full", "reentrant": True}},
    }


@pytest.mark.parametrize("text", ["foo", "=3", "a..b=1", ".=1", "a=[1", "task.x=1", "a=!!python/none x"])
def test_malformed_changes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--set"):
        changed({"task": "sft"}, text)


def test_an_unknown_path_gets_the_nearest_key() -> None:
    plan = io.BytesIO(b"model: {model_type: llama}\nbatch: {micro_batch: 1, sequence: 8}\n")
    with pytest.raises(InputError, match=r"--set batch.acumulation=2: .*Did you mean accumulation\?"):
        read_draft("-", ["batch.acumulation=2"], plan)


@pytest.mark.parametrize("name", ["parallel.options.overlap_comm", "stack.env.NCCL_X", "stack.versions.trl"])
def test_null_leaves_a_name_of_a_free_map_out(name: str) -> None:
    section, key, last = name.split(".")
    data = {section: {key: {last: "1", "other": 2}}}
    assert apply_sets(Document(data, {}), [f"{name}=null"]).data == {section: {key: {"other": 2}}}
    assert apply_sets(Document({}, {}), [f"{name}=null"]).data == {section: {key: {}}}


def test_null_leaves_a_nested_option_out() -> None:
    data = {"parallel": {"options": {"offload_param": {"device": "cpu", "pin_memory": True}}}}
    found = apply_sets(Document(data, {}), ["parallel.options.offload_param.device=null"]).data
    assert found == {"parallel": {"options": {"offload_param": {"pin_memory": True}}}}


def test_versions_can_be_set_together() -> None:
    assert changed({"stack": {"versions": {"trl": "1.0"}}}, 'stack.versions={torch: "2.10"}') == {
        "stack": {"versions": {"torch": "2.10"}}
    }
