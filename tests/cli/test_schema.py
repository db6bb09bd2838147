"""`trainledger schema` prints a JSON Schema that is valid and that accepts the examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from trainledger.cli.main import main

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Any:
    """The schema as the program prints it."""
    assert main(["schema"]) == 0
    return json.loads(capfd.readouterr().out)


def test_it_is_json_with_the_option_of_other_verbs_too(printed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--json", "--compact"]) == 0
    assert json.loads(capfd.readouterr().out) == printed


def test_it_is_a_schema(printed: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(printed)
    assert {"model", "precision", "optimizer", "batch", "parallel", "stack", "device"} <= set(printed["properties"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_accepts_the_examples(printed: Any, path: Path) -> None:
    jsonschema.Draft202012Validator(printed).validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_it_refuses_an_unknown_key(printed: Any) -> None:
    plan = yaml.safe_load(EXAMPLES[0].read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError, match="modle"):
        jsonschema.Draft202012Validator(printed).validate({**plan, "modle": "x"})


def test_compact_is_the_same_on_one_line(printed: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--compact"]) == 0
    text = capfd.readouterr().out
    assert text.count("\n") == 1
    assert json.loads(text) == printed
