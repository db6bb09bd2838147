"""`trainledger layout`: its table, its JSON, files, and words that mean nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.cli.contract import BYTES, TEXT, array, record

SPAN = {"type": "array", "items": BYTES, "minItems": 2, "maxItems": 2}
HELD = {"anyOf": [SPAN, {"type": "null"}]}
CONTRACT = record(
    strategy=TEXT,
    rank=BYTES,
    world=BYTES,
    buffers=array(record(name=TEXT, elements=BYTES, unpadded=BYTES, ranks=BYTES, rank=BYTES, owned=BYTES)),
    parameters=array(record(name=TEXT, elements=BYTES, dtype=TEXT, placed=SPAN, world=HELD, local=HELD, param=HELD), 1),
    notes=array(TEXT),
)
ALONE = ("--set", "parallel.strategy=none", "--set", "parallel.dp=1", "--set", "parallel.world=1")
SHARDED = ("--set", "parallel.strategy=zero1", "--set", "parallel.dp=4", "--set", "parallel.world=4")


@pytest.fixture
def run(run: Command) -> Command:
    """Run `layout`."""
    return partial(run, "layout")


def test_the_json_keeps_its_contract(run, plan: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    code, out, err = run(plan, *SHARDED, "--rank", "1", "--json")
    assert (code, err) == (0, "")
    jsonschema.validate(json.loads(out), CONTRACT)


def test_text_and_json_say_the_same(run, plan: str) -> None:
    found = json.loads(run(plan, *SHARDED, "--rank", "1", "--param", "layers.1.mlp.up_proj", "--json")[1])
    (one,) = found["parameters"]
    code, out, _ = run(plan, *SHARDED, "--rank", "1", "--param", "layers.1.mlp.up_proj")
    assert code == 0
    assert out.startswith("rank 1 of 4: zero1\n")
    spans = [f"[{one[key][0]:,}, {one[key][1]:,})" for key in ("world", "local", "param") if one[key]]
    assert one["name"] in out
    assert all(span in out for span in spans)
    assert ["#", "buffer", "elements", "unpadded", "ranks", "rank", "shard"] in [
        line.split() for line in out.splitlines()
    ]


def test_the_columns_of_ranges_stand_there_where_the_rank_has_nothing(run, plan: str) -> None:
    out = run(plan, *SHARDED, "--rank", "3", "--param", "layers.0.mlp.up_proj")[1]
    header, row = out.splitlines()[-2:]
    assert header.split() == ["parameter", "elements", "dtype", "buffer", "world", "local", "param"]
    assert row.split()[-3:] == ["-", "-", "-"]


def test_a_file_is_written_and_not_written_over(run, plan: str, tmp_path: Path) -> None:
    target = tmp_path / "layout.json"
    assert run(plan, *ALONE, "--json", "-o", str(target)) == (0, "", "")
    first = target.read_text(encoding="utf-8")
    assert json.loads(first)["strategy"] == "none"
    code, out, err = run(plan, *ALONE, "-o", str(target))
    assert (code, out) == (2, "")
    assert "--force" in err
    assert target.read_text(encoding="utf-8") == first
    assert run(plan, *ALONE, "-o", str(target), "--force")[0] == 0
    assert target.read_text(encoding="utf-8").startswith("rank 0 of 1: none\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*ALONE, "--rank", "1"), "one rank, 0"),
        ((*SHARDED, "--rank", "4"), "from 0 to 3"),
        (("--param", "up_prj"), "--param"),
        (("--param", ""), "--param"),
        (("-o", "/nowhere/at/all"), "-o"),
        (("--set", "parallel.strategy=megatron-fsdp"), "parallel.strategy"),
    ],
)
def test_words_that_mean_nothing(run, plan: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(plan, *arguments)
    assert (code, out) == (2, "")
    assert said in err
