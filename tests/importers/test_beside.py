"""Files that a plan names besides its model: devices of one's own and lengths of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainledger.base.problems import InputError
from trainledger.base.units import GIB
from trainledger.importers.beside import device_data, device_set, lengths_data
from trainledger.importers.plan_file import read_draft

DEVICE = "name: asic\nmemory: 8GiB\nbandwidth: 1TB\n"
PLAN = "model: qwen2.5-0.5b\nbatch: {micro_batch: 1, sequence: 16}\n"


def test_a_device_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "asic.yaml").write_text(DEVICE, encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(f"{PLAN}device: asic.yaml\n", encoding="utf-8")
    device = read_draft(str(tmp_path / "plan.yaml")).plan.device
    assert device is not None
    assert (device.name, device.memory, device.bandwidth) == ("asic", 8 * 2**30, 10**12)


def test_the_option_takes_a_name_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "asic.json"
    file.write_text(json.dumps({"device": {"name": "asic", "memory": "8GiB"}}), encoding="utf-8")
    assert device_set("h100-80gb") == 'device="h100-80gb"'
    assert device_set(str(file)) == f"device={json.dumps(str(file))}"
    assert device_data("mine") == "mine"


def test_a_file_that_is_missing_or_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--device"):
        device_set(str(tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(InputError, match="no mapping"):
        device_data("list.yaml", str(tmp_path))


@pytest.mark.parametrize("text", ["[12, 7, 900]", "12\n7\n900\n", "12, 7, 900"])
def test_lengths_in_a_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "lengths").write_text(text, encoding="utf-8")
    assert lengths_data("lengths", str(tmp_path)) == [12, 7, 900]
    (tmp_path / "plan.yaml").write_text(f"{PLAN}lengths: lengths\n", encoding="utf-8")
    lengths = read_draft(str(tmp_path / "plan.yaml")).plan.lengths
    assert lengths is not None
    assert lengths.values == (12, 7, 900)


@pytest.mark.parametrize("text", ["", "12\nseven\n", "-3"])
def test_other_files_are_no_lengths(tmp_path: Path, text: str) -> None:
    (tmp_path / "lengths").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"lengths\.file"):
        lengths_data("lengths", str(tmp_path))


def test_files_of_a_command_line_lie_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, work = tmp_path / "plans", tmp_path / "work"
    for folder, tokens in ((beside, 12), (work, 34)):
        folder.mkdir()
        (folder / "lengths").write_text(f"{tokens}\n", encoding="utf-8")
        (folder / "own.yaml").write_text(f"name: mine\nmemory: {tokens}GiB\n", encoding="utf-8")
    (beside / "plan.yaml").write_text(f"{PLAN}lengths: lengths\n", encoding="utf-8")
    monkeypatch.chdir(work)
    path = str(beside / "plan.yaml")
    written, given = read_draft(path).plan, read_draft(path, ["lengths=lengths", "device=own.yaml"]).plan
    inner = read_draft(path, ["lengths={file: lengths, packing: packed}"]).plan
    assert (written.lengths and written.lengths.values) == (12,)
    assert (given.lengths and given.lengths.values) == (inner.lengths and inner.lengths.values) == (34,)
    assert given.device is not None
    assert given.device.memory == 34 * GIB
    (work / "lengths").unlink()
    with pytest.raises(InputError, match="lengths"):
        read_draft(path, ["lengths=lengths"])


@pytest.mark.parametrize(
    ("text", "line", "path"),
    [
        ("name: asic\nmemry: 8GiB\n", 2, "device.memry"),
        ("name: asic\nmemory: lots\n", 2, "device.memory"),
        ("device:\n  name: asic\n  memory: lots\n", 3, "device.memory"),
        ("name: asic\nmemory: 8GiB\ntiers:\n  - {name: a, byts: 1GiB}\n", 4, "device.tiers.0.byts"),
    ],
)
@pytest.mark.parametrize("given", [True, False])
def test_what_is_wrong_in_a_device_s_file_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int, path: str, given: bool
) -> None:
    """Whether the plan names the file or the command line does."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "plan.yaml").write_text(PLAN + ("" if given else "device: own.yaml\n"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_draft("plan.yaml", [device_set("own.yaml")] if given else [])
    problem = next(one for one in caught.value.problems if one.path == path)
    assert problem.where == f"own.yaml:{line}"
    if "byts" in path:
        assert problem.fix == "Did you mean bytes?"
        assert "name, bytes, bandwidth" in problem.allowed
