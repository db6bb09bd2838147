"""`trainledger export`: files that are written, keys that are not said, what is never written over."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import split

import pytest

from trainledger.base.problems import InputError
from trainledger.cli.output import check_outputs
from trainledger.importers.formats import EMITTERS

WRITTEN = {"run.yaml", "run.sh", "run-model/config.json"}


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_the_file_and_what_belongs_to_it_are_written_beside_each_other(run, plan: str, out: Path) -> None:
    code, text, err = run("export", plan, "--to", "axolotl", "-o", str(out / "run.yaml"))
    assert (code, text) == (0, "")
    assert files(out) == WRITTEN
    assert "not said: device.name a100-80gb: its files do not say it; --set device.name=a100-80gb" in err


def test_what_was_written_gives_the_same_estimate(run, plan: str, out: Path) -> None:
    """With the options that stand in its head."""
    assert run("export", plan, "--to", "trl", "-o", str(out / "run.yaml"))[0] == 0
    head = next(line for line in (out / "run.sh").read_text().splitlines() if "trainledger estimate" in line)
    words = split(head.partition("trainledger ")[2].replace("run.sh", str(out / "run.sh")))
    assert "--set" in words
    _, mine, _ = run("estimate", plan, "--json")
    _, theirs, _ = run(*words, "--json")
    assert json.loads(mine)["peak"] == json.loads(theirs)["peak"]


@pytest.mark.parametrize("there", sorted(WRITTEN))
def test_nothing_is_written_over(run, plan: str, out: Path, there: str) -> None:
    (out / there).parent.mkdir(exist_ok=True)
    (out / there).write_text("mine", encoding="utf-8")
    code, _, err = run("export", plan, "--to", "axolotl", "-o", str(out / "run.yaml"))
    assert code == 2
    assert there in err
    assert "--force" in err
    assert files(out) == {there}
    assert (out / there).read_text(encoding="utf-8") == "mine"
    assert run("export", plan, "--to", "axolotl", "-o", str(out / "run.yaml"), "--force")[0] == 0
    assert (out / there).read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize("where", ["missing/run.yaml", ""])
def test_a_folder_that_is_not_there_is_refused(run, plan: str, out: Path, where: str) -> None:
    code, _, err = run("export", plan, "--to", "axolotl", "-o", f"{out}/{where}")
    assert code == 2
    assert "-o" in err


def test_all_files_are_printed_where_none_is_named(run, plan: str) -> None:
    code, out, _ = run("export", plan, "--to", "accelerate")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("# file: ")] == [
        "# file: accelerate.yaml", "# file: accelerate.sh", "# file: accelerate-model/config.json",
    ]  # fmt: skip


def test_one_file_is_printed_as_it_is(run, plan: str) -> None:
    sets = ["--set", "stack.framework=megatron", "--set", "parallel.strategy=megatron-ddp", "--set", "task=pretrain"]
    code, out, _ = run("export", plan, "--to", "megatron", *sets)
    assert code == 0
    assert out.startswith("#!/bin/bash\n")
    assert "# file:" not in out


def test_the_data_lists_files_and_keys_that_are_not_said(run, plan: str) -> None:
    code, out, _ = run("export", plan, "--to", "accelerate", "--json", "--set", "stack.loss=chunked")
    assert code == 0
    data = json.loads(out)
    assert (data["to"], data["reads"]) == ("accelerate", "accelerate.sh")
    assert {one["name"] for one in data["files"]} >= {"accelerate.yaml", "accelerate.sh"}
    loss = next(one for one in data["unsaid"] if one["path"] == "stack.loss")
    assert (loss["value"], loss["back"], loss["change"]) == ("chunked", "full-fp32", "--set stack.loss=chunked")


def test_what_the_framework_cannot_run_is_wrong_input(run, plan: str, out: Path) -> None:
    code, text, err = run("export", plan, "--to", "deepspeed", "-o", str(out / "ds.json"))
    assert (code, text) == (2, "")
    assert "parallel.strategy: found ddp; DeepSpeed runs" in err
    assert files(out) == set()


def test_an_unknown_format_offers_the_nearest(run, plan: str) -> None:
    code, _, err = run("export", plan, "--to", "megatronn")
    assert code == 2
    assert "Did you mean megatron?" in err


def test_a_format_must_be_named(run, plan: str) -> None:
    code, _, err = run("export", plan)
    assert code == 2
    assert "--to" in err


def test_a_key_that_moves_memory_and_is_in_no_plan_is_named(run, tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text("base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nlayer_offloading: true\n", encoding="utf-8")
    code, _, err = run("export", str(path), "--to", "trl")
    assert code == 0
    assert f"not carried: {path}:3 layer_offloading" in err


def test_every_format_stands_in_the_help(run) -> None:
    _, out, _ = run("export", "--help")
    assert all(name in out for name in EMITTERS)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_not_written_over(tmp_path: Path, force: bool) -> None:
    (tmp_path / "run.sh").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_outputs(str(tmp_path), ["run.sh"], force)
