"""`trainledger import`, and verbs that are given the run's own files: in one process, as a user would type them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

TUNE = """\
model:
  _component_: torchtune.models.llama3_2.llama3_2_1b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 2048
batch_size: 2
gradient_accumulation_steps: 1
optimizer:
  _component_: torch.optim.AdamW
  fused: true
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dtype: bf16
enable_activation_checkpointing: true
enable_activation_ofloading: false
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tune.yaml"
    path.write_text(TUNE, encoding="utf-8")
    return str(path)


def test_a_plan_is_written_with_the_origin_of_every_key(run, file: str, tmp_path: Path) -> None:
    target = tmp_path / "plan.yaml"
    code, _, err = run("import", file, "-o", str(target))
    named = f"{file}:15 enable_activation_ofloading is not known; did you mean enable_activation_offloading?"
    assert (code, err) == (0, f"{named} It was ignored.\n")
    text = target.read_text(encoding="utf-8")
    plan = yaml.safe_load(text)
    assert (plan["batch"]["micro_batch"], plan["batch"]["sequence"]) == (2, 2048)
    assert f"{file}:6 batch_size" in text
    assert "# default: " in text
    assert f"# {named}" in text


def test_a_file_that_is_there_is_not_written_over(run, file: str, tmp_path: Path) -> None:
    target = tmp_path / "plan.yaml"
    target.write_text("mine", encoding="utf-8")
    code, _, err = run("import", file, "-o", str(target))
    assert code == 2
    assert "--force" in err
    assert target.read_text(encoding="utf-8") == "mine"
    assert run("import", file, "-o", str(target), "--force")[0] == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_what_is_no_file_is_not_asked_to_be_written_over(run, file: str, tmp_path: Path) -> None:
    code, _, err = run("import", file, "-o", "/dev/full")
    assert code == 2
    assert "/dev/full: No space left on device" in err
    assert "--force" not in err
    err = run("import", file, "-o", str(tmp_path))[2]
    assert f"-o: {tmp_path} is a folder" in err


def test_the_plan_that_was_written_gives_the_same_estimate(run, file: str, tmp_path: Path) -> None:
    target = tmp_path / "plan.yaml"
    run("import", file, "-o", str(target))
    first, second = (json.loads(run("estimate", one, "--json")[1]) for one in (file, str(target)))
    assert first["peak"] == second["peak"]
    assert first["entries"] == second["entries"]


def test_an_estimate_says_what_it_read_and_what_it_did_not_know(run, file: str) -> None:
    code, out, _ = run("estimate", file)
    assert code == 0
    assert "enable_activation_ofloading is not known; did you mean enable_activation_offloading?" in out
    assert "did you mean enable_activation_offloading?" in out
    draft = json.loads(run("estimate", file, "--json")[1])["draft"]
    assert draft["formats"] == [{"file": file, "format": "torchtune"}]
    assert [one["path"] for one in draft["unknown"]] == ["enable_activation_ofloading"]


def test_what_is_no_pair_is_refused(run, file: str) -> None:
    code, _, err = run("estimate", file, "--env", "NOTHING", "--framework-version", "torchtune=0.6")
    assert code == 2
    assert "--env" in err
    assert "--framework-version" in err


def test_releases_are_those_of_known_packages(run, file: str) -> None:
    for given, word in (
        ("foo==1", "Known are torch,"),
        ("tranformers==4.48", "Did you mean transformers?"),
        ("torch==banana", 'found "banana"; a release, a day, a commit or a branch is needed'),
        ("torch==", 'found ""; a release'),
    ):
        code, _, err = run("estimate", file, "--framework-version", given)
        assert code == 2
        assert "--framework-version" in err
        assert word in err


def test_a_release_beside_a_plan_counts(run, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("model: gpt2\nbatch: {micro_batch: 1, sequence: 8}\nstack: {versions: {torch: '2.8.0'}}\n")
    out = run("import", str(path), "--framework-version", "torch==2.6.0")[1]
    assert yaml.safe_load(out)["stack"]["versions"]["torch"] == "2.6.0"
    assert "given: --framework-version" in out


def test_a_plan_among_other_files_is_named_as_that(run, file: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("model: gpt2\nbatch: {micro_batch: 1, sequence: 8}\n", encoding="utf-8")
    code, _, err = run("import", str(path), file)
    assert code == 2
    assert f"{path}: a plan of trainledger already; a plan is read alone" in err
    assert "not recognised" not in err


def test_the_plan_and_its_origins_for_programs(run, file: str) -> None:
    code, out, _ = run("import", file, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["plan"]["batch"]["sequence"] == 2048
    assert [one["path"] for one in found["draft"]["unknown"]] == ["enable_activation_ofloading"]


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        (
            "plan.yaml",
            "model: gpt2\nbatch:\n\tmicro_batch: 1\n",
            "plan.yaml:3: input: broken YAML: a tab in front of a key",
        ),
        ("run.toml", "", "run.toml: input: an empty file"),
        ("run.sh", " \n", "run.sh: input: an empty file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(run, tmp_path: Path, name: str, text: str, word: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    code, _, err = run("estimate", str(path))
    assert code == 2
    assert word in err


def test_a_link_to_nothing_and_a_folder_without_a_model_are_said(run, tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to(tmp_path / "gone.yaml")
    (tmp_path / "folder").mkdir()
    assert "link.yaml: a link to a file that is not there" in run("estimate", str(tmp_path / "link.yaml"))[2]
    assert "folder: a folder without config.json" in run("estimate", str(tmp_path / "folder"))[2]


def test_variables_beside_a_plan_are_refused(run, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("model: gpt2\nbatch: {micro_batch: 1, sequence: 8}\n", encoding="utf-8")
    code, _, err = run("estimate", str(path), "--env", "FOO=1")
    assert code == 2
    assert "--env: given with a plan" in err


def test_a_device_is_looked_up_under_its_own_option(run, file: str) -> None:
    code, _, err = run("estimate", file, "--device", "nodev")
    assert code == 2
    assert err.startswith("--device: no device 'nodev'")


def test_a_pickle_is_never_read(run, tmp_path: Path) -> None:
    path = tmp_path / "training_args.bin"
    path.write_bytes(b"\x80\x04")
    code, _, err = run("estimate", str(path))
    assert code == 2
    assert "pickle" in err
    assert "to_json_string" in err


def test_what_is_not_recognised_is_said(run, tmp_path: Path) -> None:
    path = tmp_path / "odd.sh"
    path.write_text("#!/bin/bash\nls -l\n", encoding="utf-8")
    code, _, err = run("estimate", str(path))
    assert code == 2
    assert "not recognised" in err


def test_an_account_that_is_left_out_is_asked_for(run, file: str) -> None:
    code, _, err = run("explain", file)
    assert code == 2
    assert "ACCOUNT: missing; files and then an account of the ledger are needed." in err
    assert f"Name one after it: trainledger explain {file} weights." in err


def test_a_place_that_names_its_key_is_not_followed_by_the_key_again(run, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model_name_or_path: x\nfinetuning_type: lora\nstage: sftt\n", encoding="utf-8")
    code, _, err = run("estimate", str(path))
    assert code == 2
    assert f"{path}:3 stage: found 'sftt'" in err


@pytest.mark.parametrize("name", ["micro_batchsize_per_gpu", "micro_batch_size_pergpu"])
def test_a_key_of_a_silent_section_that_is_nearly_one_that_counts_is_listed(run, name: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    text = "torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.max_length=2048 data.train_batch_size=256"
    path.write_text(f"{text} model.partial_pretrain=Qwen/Qwen2.5-7B data.{name}=4\n", encoding="utf-8")
    code, out, err = run("import", str(path))
    assert code == 0  # the trainer has a default for it
    assert f"data.{name}" in err
    assert "data.micro_batch_size_per_gpu" in err
    assert "micro_batch: 4  # default: " in out
