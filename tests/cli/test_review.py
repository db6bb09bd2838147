"""`trainledger review` prints one page in five forms that say the same."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from trainledger.cli.main import main

PLAN = str(Path(__file__).resolve().parents[2] / "examples" / "qwen2.5-7b-zero3.yaml")


def run(capfd: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["review", PLAN, *options]) == 0
    return capfd.readouterr().out


def test_the_forms_agree(capfd: pytest.CaptureFixture[str]) -> None:
    data = json.loads(run(capfd, "--json"))
    rows = list(csv.DictReader(io.StringIO(run(capfd, "--csv"))))
    assert [one["field"] for one in rows] == [one["field"] for one in data["fields"]]
    assert [one["rank_bytes"] for one in rows] == [str(one["rank_bytes"] or "") for one in data["fields"]]
    text, marked, page = run(capfd), run(capfd, "--markdown"), run(capfd, "--html")
    for one in data["fields"]:
        assert one["field"] in text
        assert f"| {one['field']} |" in marked
        assert f">{one['field']}</td>" in page
    assert page.startswith("<!doctype html>")
    assert marked.startswith(f"# {data['title']}\n")


def test_the_seed_s_fields_are_all_there(capfd: pytest.CaptureFixture[str]) -> None:
    fields = [one["field"] for one in json.loads(run(capfd, "--json"))["fields"]]
    assert fields[:6] == [
        "parameters", "shared parameters", "compute weights", "gradients", "master weights", "optimizer states",
    ]  # fmt: skip
    assert {"resident states", "transient peak of states", "not in the states"} <= set(fields)


def test_one_form_at_a_time_and_a_file_of_its_own(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["review", PLAN, "--csv", "--html"]) == 2
    capfd.readouterr()
    file = tmp_path / "page.html"
    assert run(capfd, "--html", "-o", str(file)) == ""
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["review", PLAN, "-o", str(file)]) == 2
