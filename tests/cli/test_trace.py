"""`trainledger trace`: a plan's code and a user's, as tables and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.cli.contract import ESTIMATE
from tests.evidence.trace.scripts import TEXT
from trainledger.cli.main import main


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "user_script.py"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def test_json_is_that_of_an_estimate_and_the_gate_closes(plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--set", "parallel={strategy: none}"]
    assert main(["trace", plan, "--json", "--gate", *one, "--set", "device={name: small, memory: 1MiB}"]) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, ESTIMATE)
    assert found["verdict"]["outcome"] == "does-not-fit"
    at_peak = sum(entry["bytes"] for entry in found["entries"])
    assert at_peak == found["peak"]["allocated"]["expected"]
    assert main(["estimate", plan, "--json", *one]) == 0
    formula = json.loads(capsys.readouterr().out)
    assert found["peak"]["steps"]["allocated"]["expected"] == pytest.approx(
        formula["peak"]["steps"]["allocated"]["expected"], rel=0.02
    )


def test_script(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--script", f"{script}:pieces", "--lines", "--device", "a100-80gb"]) == 0
    shown = capsys.readouterr().out
    assert "18,696 parameters" in shown
    assert "step 2: backward" in shown
    assert "FITS" in shown
    assert main(["trace", "--script", f"{script}:step", "--json", "--moment", "step 2: clip"]) == 0
    assert json.loads(capsys.readouterr().out)["moment"] == "step 2: clip"


def test_a_failing_model_is_one_message(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--script", f"{script}:wrong"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("trace: 0.inner failed at step 1: forward: RuntimeError")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace"],
        ["trace", "plan.yaml", "--script", "x.py:f"],
        ["trace", "--script", "x.py:f", "--set", "batch.micro_batch=2"],
        ["trace", "plan.yaml", "--device", "t4"],
        ["trace", "--script", "nowhere.py:f"],
        ["trace", "--script", "nowhere.py"],
    ],
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err
