"""Measured runs told again as their users' own files: each gives the estimate, or the plan, of its record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainledger.answer.estimate import estimate
from trainledger.importers.document import Document
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of
from trainledger.plan.schema import as_mapping

DATA = Path(__file__).resolve().parents[1] / "data"
RUNS = sorted((DATA / "outside" / "runs").iterdir())


def records(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["id"], row["plan"]


KNOWN = {**dict(records("records_frameworks.jsonl")), **dict(records("outside/torchtitan_records.jsonl"))}
TITAN = [path for path in RUNS if KNOWN[path.stem]["stack"]["framework"] == "torchtitan"]
OTHERS = [path for path in RUNS if path not in TITAN]


def of_file(path: Path) -> Any:
    """The plan of a file, with what no file says: the device and the releases."""
    plan = KNOWN[path.stem]
    return read_any([str(path)], [f"device={plan['device']}"], versions=plan["stack"].get("versions", {})).plan


def of_record(path: Path) -> Any:
    return draft_of(Document(KNOWN[path.stem], {})).plan


@pytest.mark.parametrize("path", OTHERS, ids=[path.stem for path in OTHERS])
def test_a_file_gives_the_estimate_of_its_record(path: Path) -> None:
    mine, its = estimate(of_file(path)), estimate(of_record(path))
    assert mine.peak == its.peak
    assert (mine.steps, mine.parameters, mine.ledger.lines) == (its.steps, its.parameters, its.ledger.lines)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path, data


@pytest.mark.parametrize("path", TITAN, ids=[path.stem for path in TITAN])
def test_a_file_gives_the_plan_of_its_record(path: Path) -> None:
    mine, its = (dict(leaves(as_mapping(plan))) for plan in (of_file(path), of_record(path)))
    heads = ".model.num_attention_heads"
    mine.setdefault(".model.head_dim", mine[".model.hidden_size"] // mine[heads])  # what a catalogue's row leaves out
    same = {key: value for key, value in its.items() if key != ".model.name"}
    assert {key: mine.get(key) for key in same} == same


def test_enough_records_are_told_again() -> None:
    frameworks = [KNOWN[path.stem]["stack"]["framework"] for path in RUNS]
    assert all(frameworks.count(name) >= 4 for name in ("torchtune", "litgpt", "torchtitan"))
