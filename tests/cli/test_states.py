"""`trainledger states`, through a small app of its own."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from trainledger.base.problems import InputError
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
    assert _run().exit_code == 2
