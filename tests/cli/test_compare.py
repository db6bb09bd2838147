"""`trainledger compare`: runs' files, devices, and words that mean nothing."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Command
from tests.house.rules import ROOT

EXAMPLES = ROOT / "examples"
SMALL = str(EXAMPLES / "llama-3.2-1b-single.yaml")


def test_two_plans(run: Command, plan: str) -> None:
    code, out, err = run("compare", plan, SMALL, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert [one["name"] for one in data["plans"]] == [plan, SMALL]
    assert data["steps"][0]["to"] == SMALL
    text = run("compare", plan, SMALL)[1]
    assert "Keys that differ" in text
    assert "From A to B, one difference at a time" in text


def test_one_plan_on_devices(run: Command, plan: str) -> None:
    code, out, _ = run("compare", plan, "--devices", "a100-80gb,t4")
    assert code == 0
    assert "a100-80gb" in out
    assert "t4" in out


def test_files_of_one_run_are_joined(run: Command, tmp_path) -> None:
    config = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "two.json").write_text(json.dumps({**config, "zero_optimization": {"stage": 2}}), encoding="utf-8")
    args = {"bf16": True, "per_device_train_batch_size": 1, "max_length": 512, "gradient_checkpointing": True}
    (tmp_path / "args.json").write_text(json.dumps(args), encoding="utf-8")
    runs = [f"{tmp_path / 'args.json'}+{tmp_path / name}" for name in ("ds.json", "two.json")]
    more = ("--set", "model=llama-3.2-1b", "--set", "parallel.world=4", "--set", "device=a100-80gb")
    code, out, err = run("compare", *runs, *more)
    assert code == 0, err
    assert "parallel.strategy: zero3 -> zero2" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "two plans or more"),
        ((SMALL, "--devices", "t4"), "one plan is compared on devices"),
        (("--devices", "no-such"), "--devices"),
        (("--devices", "t4"), "two devices or more"),
        ((SMALL, "--units", "gib"), "--units"),
        (("no-such.yaml",), "no-such.yaml"),
    ],
)
def test_wrong_input(run: Command, plan: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("compare", plan, *arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("name", ["+", "a.yaml+", "+b.json"])
def test_a_plus_joins_two_files(run: Command, name: str) -> None:
    code, out, err = run("compare", name, SMALL)
    assert (code, out) == (2, "")
    assert "a file on each side of a + is needed" in err
