"""The library's answers about changes: the same as the command line's, and they show themselves."""

from __future__ import annotations

import json

import pytest
import yaml

import trainledger
from tests.house.rules import ROOT

EXAMPLE = ROOT / "examples" / "llama-3.2-1b-single.yaml"


def test_compare() -> None:
    mapping = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    mapping["batch"]["micro_batch"] = 2
    result = trainledger.compare(str(EXAMPLE), mapping)
    assert [one["name"] for one in result.to_dict()["plans"]] == [str(EXAMPLE), "plan 2"]
    assert result.to_dict()["keys"][0]["path"] == "batch.micro_batch"
    assert "<table>" in result._repr_html_()
    assert "Keys that differ" in str(result)
    json.dumps(result.to_dict())
    assert "plan 2" in repr(trainledger.compare([str(EXAMPLE)], mapping, optimizer__grad_clip=None))
    assert len(trainledger.compare(EXAMPLE, devices=["a100-80gb", "t4"]).answer.sides) == 2


@pytest.mark.parametrize("plan", [5, None, b"plan.yaml", [5], [str(EXAMPLE), {}]])
def test_what_is_no_plan_is_refused(plan: object) -> None:
    for ask in (trainledger.estimate, lambda given: trainledger.compare(given, EXAMPLE)):
        with pytest.raises(trainledger.InputError, match="plan: found a value of type"):
            ask(plan)  # type: ignore[operator]
    with pytest.raises(trainledger.InputError, match="plan: found a value of type"):
        trainledger.search(plan, "8xh100-80gb")  # type: ignore[arg-type]
