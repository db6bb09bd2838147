"""The Python library: light to import, the same answers as the command line, clear refusals."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import trainledger
from tests.house.rules import ROOT
from tests.plans import LLAMA

EXAMPLE = ROOT / "examples" / "llama-3.2-1b-single.yaml"


def test_the_package_is_light_to_import() -> None:
    code = "import sys, trainledger; print([name for name in ('pydantic', 'yaml', 'rich') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_path_a_file_and_a_mapping_agree() -> None:
    plan = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    before = copy.deepcopy(plan)
    first, second, third = map(trainledger.estimate, (str(EXAMPLE), Path(EXAMPLE), plan))
    assert first.answer == second.answer == third.answer
    assert plan == before


def test_changes_by_keyword() -> None:
    result = trainledger.estimate(str(EXAMPLE), batch__micro_batch=8, stack__versions__torch="2.10.0", device=None)
    assert result.answer.plan.batch.micro_batch == 8
    assert result.answer.plan.stack.versions["torch"] == "2.10.0"
    assert result.to_dict()["verdict"]["outcome"] is None


def test_a_result_shows_itself() -> None:
    result = trainledger.estimate(str(EXAMPLE))
    data, page = result.to_dict(), result._repr_html_()
    assert sum(entry["bytes"] for entry in data["entries"]) == data["peak"]["allocated"]["expected"]
    assert f"{data['peak']['allocated']['expected']:,} B" in repr(result)
    assert "by account" in str(result)
    assert page.count("<table>") == page.count("</table>") > 1
    assert result.explain("weights")["bytes"] == sum(
        entry["bytes"] for entry in data["entries"] if entry["account"] == "weights"
    )


def test_html_is_escaped() -> None:
    keys = {"model_type": "llama", "name": "<script>&", "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 1}
    keys |= {"intermediate_size": 128, "num_attention_heads": 4}
    result = trainledger.estimate({"model": keys, "batch": {"micro_batch": 1, "sequence": 8}})
    assert "<script>" not in result._repr_html_()
    assert "&lt;script&gt;&amp;" in result._repr_html_()


@pytest.mark.parametrize("plan", [None, 7, ["a"], {}, {"model": "llama-3-8b"}, {"model": object()}, "no-such.yaml"])
def test_bad_plans(plan: object) -> None:
    with pytest.raises(trainledger.InputError):
        trainledger.estimate(plan)  # type: ignore[arg-type]


def test_a_value_that_no_plan_can_have() -> None:
    with pytest.raises(trainledger.InputError, match=r"batch\.micro_batch"):
        trainledger.estimate(str(EXAMPLE), batch__micro_batch=object())


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError):
        trainledger.nothing  # noqa: B018


def test_the_page_of_states() -> None:
    result = trainledger.estimate(str(ROOT / "examples" / "llama-3.2-1b-single.yaml"))
    assert [one["field"] for one in result.review()["fields"]][:3] == [
        "parameters", "shared parameters", "compute weights",
    ]  # fmt: skip


def test_a_model_is_called_as_the_plan_calls_it_or_by_its_family() -> None:
    named = trainledger.estimate(str(EXAMPLE)).to_dict()["model"]
    keys = {key: value for key, value in LLAMA.items() if key != "name"}
    bare = trainledger.estimate({"model": keys, "batch": {"micro_batch": 1, "sequence": 8}}).to_dict()["model"]
    assert named["name"] == "llama-3.2-1b"
    assert bare == {"name": "llama", "model_type": "llama"}
