"""`trainledger states`, through a small app of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from trainledger.base.problems import InputError
from trainledger.cli.main import main
from trainledger.cli.states import states

APP = typer.Typer()
APP.command()(states)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(APP, arguments)


def test_one_recipe_as_json() -> None:
    result = _run("--params", "5e12", "--recipe", "bf16-fp32grad", "--dp", "64", "--json")
    assert result.exit_code == 0
    (recipe,) = json.loads(result.stdout)["recipes"]
    assert (recipe["bytes_per_parameter"], recipe["total_bytes"]) == (18, 90 * 10**12)
    assert recipe["per_rank"]["distributed-optimizer"]["formula"] == "6 + 12/d"


def test_all_recipes_as_plain_text() -> None:
    result = _run("--params", "5e12", "--ranks", "64")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    sizes = ["90,000.00", "83,819.03", "90.00", "81.85"]
    assert ["bf16-fp32grad", "18", "2", "4", "4", "4", "+", "4", *sizes] in rows
    assert "6 + 12/d" in result.stdout
    assert "warning: bf16 weights without master weights" in result.stdout
    assert "\x1b" not in result.stdout


def test_units() -> None:
    assert "14.00 GB" in _run("--params", "7B", "--recipe", "mixed", "--units", "GB").stdout


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("--params", "many"), "params"),
        (("--params", "-1"), "params"),
        (("--params", "0"), "params"),
        (("--params", "7.5"), "params"),
        (("--params", "7B", "--recipe", "mixd"), "recipe"),
        (("--params", "7B", "--ranks", "0"), "ranks"),
        (("--params", "7B", "--units", "gib"), "units"),
    ],
)
def test_bad_input_is_an_input_error(arguments: tuple[str, ...], path: str) -> None:
    result = _run(*arguments)
    assert isinstance(result.exception, InputError)
    assert result.exception.problems[0].path == path


def test_all_problems_at_once() -> None:
    result = _run("--params", "x", "--ranks", "0", "--recipe", "y", "--units", "z")
    assert isinstance(result.exception, InputError)
    assert [problem.path for problem in result.exception.problems] == ["params", "ranks", "recipe", "units"]


def test_params_are_required() -> None:
    assert isinstance(_run().exception, InputError)
    assert main(["states"]) == 2


def test_another_tools_numbers_as_json() -> None:
    result = _run(
        "--params", "2851598336", "--largest", "32899072", "--ranks", "8", "--as", "deepspeed-zero3", "--json"
    )
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["rows"][4] == {
        "options": "offload_param=none, offload_optimizer=none, zero_init=1", "cpu": 1579155456, "gpu": 6547692544,
    }  # fmt: skip
    assert found["left_out"]


def test_another_tools_numbers_beside_our_own(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "model: TinyLlama-1.1B\nprecision: {weights: bf16}\nbatch: {micro_batch: 1, sequence: 128}\n"
        "parallel: {strategy: zero2, world: 8}\n"
    )
    result = _run(str(plan), "--as", "deepspeed-zero2")
    assert result.exit_code == 0
    assert "theirs, not this program's estimate" in result.stdout
    assert "left out: activations" in result.stdout
    assert "logits_and_loss" in result.stdout


def test_an_unknown_tool_and_a_missing_count_are_named() -> None:
    for arguments in (("--as", "accelerat", "--params", "7B"), ("--as", "deepspeed-zero3", "--params", "7B"), ()):
        result = _run(*arguments)
        assert isinstance(result.exception, InputError)


def test_another_tools_numbers_of_a_runs_own_files(tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text("base_model: Qwen/Qwen3-0.6B\nsequence_len: 512\nbf16: true\n", encoding="utf-8")
    result = _run(str(path), "--as", "deepspeed-zero2")
    assert result.exit_code == 0
    assert "theirs, not this program's estimate" in result.output


def test_files_without_a_tool_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        states(files=[str(tmp_path / "plan.yaml")])
    assert [one.path for one in caught.value.problems] == ["--as"]


@pytest.mark.parametrize(
    ("arguments", "path", "word"),
    [
        (("--as", "deepspeed-zero2", "--release", "banana"), "--release", "Write for example 0.19.8"),
        (("--as", "deepspeed-zero2", "--release", "99.9"), "--release", "0.19.8 is the newest"),
        (("--as", "deepspeed-zero3", "--largest", "8B"), "--largest", "found 8,000,000,000 of 7,000,000,000"),
        (("--as", "deepspeed-zero2", "--largest", "1B"), "--largest", "deepspeed-zero3 alone"),
        (("--as", "deepspeed-zero2", "--recipe", "mixed"), "--recipe", "a rule of its own"),
        (("--largest", "1B"), "--largest", "--as TOOL"),
        (("--release", "0.16.0"), "--release", "--as TOOL"),
        (("--per-node", "8"), "--per-node", "--as TOOL"),
    ],
)
def test_what_would_count_for_nothing_is_refused(arguments: tuple[str, ...], path: str, word: str) -> None:
    result = _run("--params", "7B", *arguments)
    assert isinstance(result.exception, InputError)
    (problem,) = result.exception.problems
    assert (problem.path, word in str(problem)) == (path, True)


def test_counts_beside_a_plan_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        states(files=[str(tmp_path / "plan.yaml")], params="7B", ranks="8", largest="1B", tool="deepspeed-zero3")
    assert [one.path for one in caught.value.problems] == ["--params", "--ranks", "--largest"]


def test_a_commit_of_a_plan_counts_as_the_newest_release(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "model: gpt2\nbatch: {micro_batch: 1, sequence: 128}\nstack: {versions: {deepspeed: 9dec370}}\n",
        encoding="utf-8",
    )
    result = _run(str(plan), "--as", "deepspeed-zero2")
    assert "deepspeed-zero2, as its newest known release counts" in result.stdout
