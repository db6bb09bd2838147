"""`trainledger estimate`: the contract of its JSON, its text, its options, its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cli.contract import ESTIMATE
from tests.house.rules import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SMALL = "device={name: small, memory: 1MiB}"


def data(run, *arguments: str) -> dict[str, Any]:
    """What `--json` prints."""
    code, out, err = run("estimate", *arguments, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out, parse_constant=pytest.fail)
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_json_keeps_the_contract(run, path: Path) -> None:
    found = data(run, str(path))
    jsonschema.validate(found, ESTIMATE)
    peak = found["peak"]
    assert sum(entry["bytes"] for entry in found["entries"]) == peak["allocated"]["expected"]
    assert all(entry["copies"] and peak["moment"] in entry["live"] for entry in found["entries"])
    assert peak["allocated"]["expected"] == max(moment["allocated"] for moment in found["moments"])
    for band in (*(peak[name] for name in ("allocated", "active", "reserved", "device")), peak["steps"]["reserved"]):
        assert band["low"] <= band["expected"] <= band["high"]
    assert max(one["allocated"] for one in found["ranks"]) == peak["allocated"]["expected"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_piped_text_is_plain(run, path: Path) -> None:
    code, out, err = run("estimate", str(path), "--lines", "--rank", "all")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line != line.rstrip()]


def test_the_text_says_what_matters(run, plan: str) -> None:
    code, out, _ = run("estimate", plan)
    assert code == 0
    found = data(run, plan)
    assert f"{found['parameters']['total']:,} parameters" in out
    assert "global batch 24 = micro-batch 2 x dp 4 x accumulation 3" in out
    assert out.count("<- peak") == 1
    assert f"allocated at {found['peak']['moment']}, on every rank of 4" in out
    assert "\nFITS: margin " in out
    assert "Transformers TrainingArguments (transformers/training_args.py, 5.24.0)" in out
    assert "lose small updates" in out
    for name in ("allocated", "active", "reserved", "device", "activations", "checkpoint"):
        assert f"\n{name} " in out


def test_lines_unfold_every_account(run, plan: str) -> None:
    _, folded, _ = run("estimate", plan)
    _, out, _ = run("estimate", plan, "--lines")
    name = "model.layers.*.mlp.up_proj.weight"
    assert name not in folded
    row = next(line for line in out.splitlines() if line.startswith(f"  {name} "))
    assert re.search(r"ffn 704 x hidden 256 +counted \[\d+\]$", row)
    assert out.split("\nSources\n")[1].startswith("[1] ")
    assert row.split()[1:5] == ["<0.01", "GiB", "4", "bf16"]


def test_another_moment(run, plan: str) -> None:
    peak, init = data(run, plan), data(run, plan, "--moment", "INIT")
    assert init["moment"] == "init"
    assert init["peak"] == peak["peak"]
    assert sum(entry["bytes"] for entry in init["entries"]) == init["moments"][0]["allocated"]
    _, out, _ = run("estimate", plan, "--moment", "init")
    assert "\ninit, by account\n" in out


def test_all_moments_list_every_line(run, plan: str) -> None:
    peak, every = data(run, plan), data(run, plan, "--moment", "all")
    jsonschema.validate(every, ESTIMATE)
    assert [entry for entry in every["entries"] if entry["copies"]] == peak["entries"]
    assert any(entry["account"] == "clip_work" and not entry["bytes"] for entry in every["entries"])
    _, out, _ = run("estimate", plan, "--moment", "all")
    assert out.count(", by account\n") == len(every["moments"])


def test_a_moment_that_there_is_not_names_the_nearest(run, plan: str) -> None:
    code, out, err = run("estimate", plan, "--moment", "step 1: clp")
    assert (code, out) == (2, "")
    assert "Did you mean 'step 1: clip'?" in err


@pytest.mark.parametrize(("unit", "text"), [("MiB", " MiB  "), ("GB", " GB  "), ("B", " B  ")])
def test_units(run, plan: str, unit: str, text: str) -> None:
    code, out, _ = run("estimate", plan, "--units", unit)
    assert code == 0
    assert text in out


@pytest.mark.parametrize("rank", ["0", "3", "003"])
def test_a_rank_of_equal_ones(run, plan: str, rank: str) -> None:
    found = data(run, plan, "--rank", rank)
    assert found["peak"]["rank"] == int(rank)
    assert found["ranks"][0]["ranks"] == [0, 1, 2, 3]


def test_all_ranks_are_one_role(run, plan: str) -> None:
    assert data(run, plan)["peak"]["rank"] == 0
    _, out, _ = run("estimate", plan, "--rank", "all")
    assert "\n0 to 3 " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rank", "4"), "a rank is a number from 0 to 3, or all"),
        (("--rank", "-1"), "--rank"),
        (("--rank", "9" * 5000), "--rank"),
        (("--rank", "first"), "--rank"),
        (("--units", "gib"), "Did you mean GiB?"),
        (("--units", "parsec"), "--units"),
        (("--gate=maybe",), "--gate=tight is needed"),
        (("--set", "batch.micro_bach=2"), "micro_batch"),
        (("--set", "batch"), "--set takes key.path=value"),
        (("--quick", "--lines", "--moment", "init"), "--lines: given with --quick"),
    ],
)
def test_wrong_options_exit_with_2(run, plan: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("estimate", plan, *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_set_changes_the_plan(run, plan: str) -> None:
    before, after = data(run, plan), data(run, plan, "--set", "batch.micro_batch=4", "--set", "batch.accumulation=1")
    assert after["peak"]["allocated"]["expected"] > before["peak"]["allocated"]["expected"]
    assert (before["global_batch"], after["global_batch"]) == (24, 16)
    used = {key["path"]: key for key in after["draft"]["used"]}
    assert used["batch.micro_batch"]["where"].startswith("--set")


def test_values_that_json_lacks_are_text(run, plan: str) -> None:
    found = data(run, plan, "--set", "model.rope_theta=.inf")
    assert [key["value"] for key in found["draft"]["used"] if key["path"] == "model.rope_theta"] == ["inf"]


def test_standard_input(run, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(plan, encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        found = data(run, "-")
    assert {key["where"].partition(":")[0] for key in found["draft"]["used"]} == {"<stdin>"}


def test_the_gate(run, plan: str) -> None:
    peak = data(run, plan)["peak"]
    between = f"device={{name: mine, memory: {peak['device']['expected']}}}"
    codes = {
        name: [run("estimate", plan, "--set", device, *gate)[0] for gate in ((), ("--gate",), ("--gate=tight",))]
        for name, device in (("fits", "device=b200"), ("tight", between), ("does-not-fit", SMALL))
    }
    assert codes == {"fits": [0, 0, 0], "tight": [0, 0, 1], "does-not-fit": [0, 1, 1]}


def test_a_bare_gate_may_stand_before_the_plan(run, plan: str) -> None:
    code, out, _ = run("estimate", "--gate", plan, "--set", SMALL, "--json")
    assert code == 1
    assert json.loads(out)["verdict"]["outcome"] == "does-not-fit"


def test_without_a_device_there_is_no_verdict_and_no_gate(run, plan: str) -> None:
    found = data(run, plan, "--set", "device=null")
    assert (found["verdict"]["outcome"], found["verdict"]["margin"], found["device"]) == (None, None, None)
    assert "\nNO VERDICT\n" in run("estimate", plan, "--set", "device=null")[1]
    code, _, err = run("estimate", plan, "--set", "device=null", "--gate")
    assert code == 2
    assert "a gate compares with a device" in err


def test_a_place_without_a_size_passes_no_gate(run, plan: str) -> None:
    tier = "device={name: asic, memory: 80GiB, tiers: [{name: SRAM, place: on-chip, bytes: 1GiB}]}"
    places = ("--set", tier, "--set", "offload={places: {optimizer_states: remote}}")
    assert run("estimate", plan, *places)[0] == 0
    code, _, err = run("estimate", plan, *places, "--gate")
    assert code == 2
    assert "remote, steps: cannot be judged" in err
    assert [one["place"] for one in data(run, plan, *places)["verdict"]["unjudged"]] == ["remote"]
    assert "node: {remote: 4TiB}" in err


def test_quick_is_labelled(run, plan: str) -> None:
    code, out, _ = run("estimate", plan, "--quick")
    assert code == 0
    assert out.startswith("Rule of thumb, not the ledger")
    code, out, _ = run("estimate", plan, "--quick", "--json", "--set", SMALL, "--gate")
    found = json.loads(out)
    assert code == 1
    assert (found["label"], found["global_batch"]) == ("rule of thumb", 24)
    assert found["verdict"]["outcome"] == "does-not-fit"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("plan.yaml", "", "empty"),
        ("plan.yaml", "model: [", "broken YAML"),
        ("plan.json", '{"model": ', "broken JSON"),
        ("plan.yaml", "- a\n- b\n", "plan"),
        ("plan.yaml", "model: llama-3-8b\nbatch: {micro_bach: 1, sequence: 8}\n", "micro_batch"),
        ("plan.yaml", "model: config.json\nbatch: {micro_batch: 1, sequence: 8}\n", "holds a list"),
        ("plan.yaml", "model: no/such/config.json\nbatch: {micro_batch: 1, sequence: 8}\n", "model"),
        ("plan.yaml", "model: llama-3-8b\nbatch: {micro_batch: -1, sequence: 8}\n", "batch.micro_batch"),
        (
            "plan.yaml",
            "model: {model_type: llama, num_hidden_layers: 999999999999}\nbatch: {micro_batch: 1, sequence: 8}\n",
            "at most 1,048,576 layers",
        ),
        (
            "plan.yaml",
            "model: {model_type: llama, hidden_size: 9999999999999}\nbatch: {micro_batch: 1, sequence: 8}\n",
            "model.hidden_size: found 9999999999999; at most",
        ),
    ],
)
def test_bad_input_is_one_clear_list(run, tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text("[1, 2]", encoding="utf-8")
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    for verb in (("estimate", str(path)), ("estimate", str(path), "--quick"), ("explain", str(path), "weights")):
        code, out, err = run(*verb)
        assert (code, out) == (2, "")
        assert said in err
        assert "Traceback" not in err
        assert "defect" not in err


OWN_FILES = {
    "sft.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\npacking: false\nmax_length: 1024\n"
    "per_device_train_batch_size: 4\ngradient_checkpointing: false\nbf16: true\n",
    "lora.yaml": "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\n"
    "cutoff_len: 1024\nper_device_train_batch_size: 4\nflash_attn: sdpa\nbf16: true\n",
    "axolotl.yml": "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 1024\nmicro_batch_size: 4\nsample_packing: false\n"
    "sdp_attention: true\nbf16: true\noptimizer: adamw_torch\ndatasets:\n  - {path: data, type: alpaca}\n",
}


@pytest.mark.parametrize("name", OWN_FILES)
def test_padding_of_a_user_s_own_file_is_counted_where_it_is_said(run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(OWN_FILES[name], encoding="utf-8")
    one = (str(path), "--set", "parallel.world=1")
    alike, padded, known = (
        data(run, *one, *more)
        for more in ((), ("--set", "lengths.padded=true"), ("--set", "lengths={median: 300, longest: 1024}"))
    )
    assert any("taken to be alike" in note for note in alike["not_counted"])
    assert padded["peak"]["allocated"]["expected"] > alike["peak"]["allocated"]["expected"]
    assert known["peak"]["allocated"] == padded["peak"]["allocated"]


def test_every_problem_is_listed(run, plan: str) -> None:
    code, _, err = run("estimate", plan, "--set", "batch.sequence=0", "--set", "optimiser.name=adamw")
    assert code == 2
    assert "batch.sequence" in err
    assert "Did you mean optimizer?" in err


@pytest.mark.parametrize("verb", ["estimate", "checkpoint", "review", "layout", "explain", "fit", "advise"])
def test_what_is_found_of_a_plan_has_the_place_of_its_key(run, tmp_path: Path, verb: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "model: qwen2.5-7b\nbatch: {micro_batch: 1, sequence: 8}\nparallel:\n  tp: 3\n  strategy: megatron-ddp\n"
        "stack: {framework: megatron}\ndevice: h100-80gb\n",
        encoding="utf-8",
    )
    code, _, err = run(verb, str(path), *(("weights",) if verb == "explain" else ()))
    assert code == 2
    assert f"{path}:4: parallel.tp: 3 does not divide the attention heads (28)" in err


def test_a_missing_file(run) -> None:
    code, out, err = run("estimate", "no-such-plan.yaml")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "no-such-plan.yaml: no such file" in err
