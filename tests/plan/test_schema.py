"""The published JSON Schema agrees with the reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trainledger.plan.schema import json_schema

SAMPLE = Path(__file__).parents[1] / "data" / "records_sample.jsonl"


def test_sample_plans_match_the_schema() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        if plan := json.loads(line).get("plan"):
            validator.validate(plan)


@pytest.mark.parametrize(
    "change",
    [{"tasks": 1}, {"task": "x"}, {"stack": {"options": {"foo": 1}}}, {"batch": {"micro_batch": 1}}, {"device": 5}],
)
def test_wrong_plans_do_not(change: dict[str, Any]) -> None:
    data = {"model": "x", "batch": {"micro_batch": 1, "sequence": 8}, **change}
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(data)


def test_every_key_has_a_description() -> None:
    schema = json_schema()
    for part in (schema, *schema["$defs"].values()):
        for name, prop in part.get("properties", {}).items():
            assert prop.get("description"), name
