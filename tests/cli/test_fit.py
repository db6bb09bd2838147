"""`trainledger fit`: its table, its JSON, the gate, and words that mean nothing."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cli.conftest import Command

SMALL = ("--set", "parallel.strategy=none", "--set", "parallel.dp=1", "--set", "parallel.world=1")
MINE = (*SMALL, "--set", "device={name: mine, memory: 4GiB}")


@pytest.fixture
def run(run: Command) -> Command:
    """Run `fit`."""
    return partial(run, "fit")


def test_the_usual_limits(run: Command, plan: str) -> None:
    code, out, err = run(plan, *MINE, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert [one["find"] for one in data["limits"]] == ["micro-batch", "sequence"]
    assert all(one["best"]["fits"] and not one["next"]["fits"] for one in data["limits"])
    text = run(plan, *MINE)[1]
    assert all(f"{one['value']:,}" in text for one in data["limits"])


def test_a_limit_can_be_set_as_it_is_named(run: Command, plan: str) -> None:
    (limit,) = json.loads(run(plan, *MINE, "--find", "micro-batch", "--json")[1])["limits"]
    again = (plan, *MINE, "--set", f"{limit['key']}={limit['value']}", "--find", "micro-batch", "--json")
    now = json.loads(run(*again)[1])["plan"]
    assert now["fits"]
    more = (plan, *MINE, "--set", f"{limit['key']}={limit['value'] + 1}", "--find", "micro-batch", "--json")
    assert not json.loads(run(*more)[1])["plan"]["fits"]


def test_a_measured_run_is_a_line_of_its_own(run: Command, plan: str) -> None:
    found = ("--measured", "reserved=3GiB,batch.micro_batch=1")
    code, out, _ = run(plan, *MINE, *found, "--find", "micro-batch")
    assert code == 0
    assert "Unexplained: reserved, measured less estimated" in out
    assert "one run cannot tell" in out
    data = json.loads(run(plan, *MINE, *found, "--find", "micro-batch", "--json")[1])
    assert data["unexplained"]["runs"][0]["measured"] == 3 * 2**30


@pytest.mark.parametrize(("memory", "code"), [("4GiB", 0), ("500MiB", 1)])
def test_the_gate(run: Command, plan: str, memory: str, code: int) -> None:
    device = ("--set", f"device={{name: mine, memory: {memory}}}")
    assert run(plan, *SMALL, *device, "--find", "micro-batch", "--gate")[0] == code
    assert run(plan, *SMALL, *device, "--find", "micro-batch")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--find", "batch"), "--find"),
        (("--confidence", "0.2"), "--confidence"),
        (("--measured", "nothing"), "--measured"),
        (("--set", "device=null"), "device"),
        (("--find", "lora-rank"), "adapter.r"),
        (("--units", "gib"), "--units"),
    ],
)
def test_wrong_input(run: Command, plan: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(plan, *MINE, *arguments)
    assert (code, out) == (2, "")
    assert said in err
