"""`trainledger explain`: arithmetic that a reader can check, and words that mean nothing."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

from tests.cli.conftest import Command
from trainledger.cli.main import main


@pytest.fixture
def run(run: Command) -> Command:
    """Run `explain`."""
    return partial(run, "explain")


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.parametrize("word", ["weights", "activations", "optimizer states", "logits"])
def test_the_text_can_be_checked_by_hand(run, plan: str, word: str) -> None:
    code, out, err = run(plan, word)
    assert (code, err) == (0, "")
    total = 0
    for section in out.split("\n\n")[1:]:
        rows = dict(re.findall(r"^  (\w+) +(.*)$", section, re.M))
        sizes, _, elements = rows["dims"].partition(" = ")
        product = 1
        for size in re.findall(r" ([\d,]+)", f" {sizes}"):
            product *= number(size)
        assert elements.split()[0] == f"{product:,}"
        bits, payload = re.fullmatch(rf"{product:,} x (\d+) bits \(\w+\) / 8 = ([\d,]+) B", rows["bytes"]).groups()  # type: ignore[union-attr]
        assert number(payload) == -(-product * int(bits) // 8)
        added, block = re.match(rf"{payload} B \+ ([\d,]+) B = ([\d,]+) B: ", rows["block"]).groups()  # type: ignore[union-attr]
        assert number(payload) + number(added) == number(block)
        copies = number(rows["copies"].split()[0])
        assert rows["total"].startswith(f"{block} B x {copies:,} = {number(block) * copies:,} B")
        total += number(block) * copies
        assert rows["source"]
    assert f" = {total:,} B in " in out.splitlines()[1]


def test_an_account_is_explained_to_its_last_byte(run, plan: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["estimate", plan, "--json"])
    entries = json.loads(capsys.readouterr().out)["entries"]
    for account in dict.fromkeys(entry["account"] for entry in entries):
        found = json.loads(run(plan, account, "--json")[1])
        assert {line["account"] for line in found["lines"]} == {account}
        assert found["bytes"] == sum(entry["bytes"] for entry in entries if entry["account"] == account)
        for line in found["lines"]:
            assert line["payload_bytes"] + line["added_bytes"] == line["block_bytes"]
            assert line["block_bytes"] * line["copies"] == line["bytes"]


def test_a_part_of_a_name(run, plan: str) -> None:
    found = json.loads(run(plan, "UP_PROJ", "--json")[1])
    assert len(found["lines"]) > 1
    assert all("up_proj" in line["name"] for line in found["lines"])


def test_a_moment(run, plan: str) -> None:
    found = json.loads(run(plan, "weights", "--moment", "init", "--json")[1])
    assert (found["moment"], found["note"]) == ("init", "")


def test_what_is_not_live_at_the_peak_is_shown_where_it_is_largest(run, plan: str) -> None:
    code, out, _ = run(plan, "clip_work")
    assert code == 0
    assert out.startswith("clip_work at step 1: clip\n")
    assert "none of it is live at the peak" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("wieghts",), "Did you mean 'weights'?"),
        (("clip_work", "--moment", "init"), "it is live at step 1: clip"),
        (("weights", "--moment", "initt"), "Did you mean 'init'?"),
        (("weights", "--units", "x"), "--units"),
    ],
)
def test_words_that_mean_nothing(run, plan: str, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(plan, *arguments)
    assert (code, out) == (2, "")
    assert said in err
