"""`trainledger advise`: text, JSON, and words that mean nothing."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Command

MINE = ("--set", "device={name: mine, memory: 3GiB}", "--combine", "1")


def test_text_and_json_say_the_same(run: Command, plan: str) -> None:
    code, out, err = run("advise", plan, *MINE, "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["best"]
    text = run("advise", plan, *MINE, "--top", "2")[1]
    for option in data["best"]:
        assert " + ".join(option["moves"]) in text
    assert "1. " in text
    assert "\n3. " not in text
    assert plan in text  # the file to change is named


def test_a_suggested_plan_can_be_set(run: Command, plan: str) -> None:
    data = json.loads(run("advise", plan, *MINE, "--json")[1])
    options = [one for one in data["best"] if not any(change["left_out"] for change in one["sets"])]
    assert options
    sets = [part for one in options[0]["sets"] for part in ("--set", f"{one['path']}={json.dumps(one['value'])}")]
    again = json.loads(run("estimate", plan, *MINE[:2], *sets, "--json")[1])
    assert again["peak"]["allocated"]["expected"] == options[0]["allocated"]
    assert again["peak"]["moment"] == options[0]["moment"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("--combine", "4"), "--combine"), (("--units", "gib"), "--units"), (("--set", "task=grpo"), "grpo")],
)
def test_wrong_input(run: Command, plan: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("advise", plan, *arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("verb", ["advise", "fit", "explain"])
def test_a_device_in_place_of_the_plan_s(run: Command, plan: str, verb: str, tmp_path) -> None:
    own = tmp_path / "asic.yaml"
    own.write_text("name: asic\nmemory: 3GiB\n")
    more = {"advise": ("--combine", "1"), "fit": ("--find", "micro-batch"), "explain": ("weights",)}[verb]
    data = json.dumps(json.loads(run(verb, plan, *more, "--device", str(own), "--json")[1]))
    assert data == json.dumps(json.loads(run(verb, plan, *more, "--set", MINE[1].replace("mine", "asic"), "--json")[1]))
    code, _, err = run(verb, plan, *more, "--device", "h100-80g")
    assert code == 2
    assert err.startswith("--device: ")
    assert "h100-80gb" in err
