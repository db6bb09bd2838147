"""`trainledger kv`: both forms of output, a plan in place of a model, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainledger.cli.main import main


def test_text(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "llama-3-8b", "--tokens", "8192"]) == 0
    shown = capfd.readouterr().out
    assert "131,072 B a token in bf16" in shown
    assert "1.00 GiB for a sequence of 8,192 tokens, in pages of 16" in shown


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "deepseek-v3", "--dtype", "fp8", "--tokens", "17", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["per_token"], shown["sequence"]) == (35_136, 35_136 * 32)
    assert shown["rows"][0]["latent"]


def test_the_model_of_a_plan(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("model: qwen2.5-7b\nbatch: {micro_batch: 1, sequence: 8}\n", encoding="utf-8")
    assert main(["kv", str(plan)]) == 0
    assert "57,344 B" in capfd.readouterr().out


def test_heads_that_lie_on_several_ranks_are_said(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "llama-3-8b", "--tp", "16"]) == 0
    shown = capfd.readouterr().out
    assert "16,384 B a token in bf16 on each of 16 ranks" in shown
    assert "8 key-value heads on 16 ranks: each head is cached on 2 ranks" in shown
    assert main(["kv", "llama-3-8b", "--tp", "8"]) == 0
    assert "is cached on" not in capfd.readouterr().out
    assert main(["kv", "deepseek-v3", "--tp", "8", "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)["rows"]
    assert (row["heads"], row["copies"]) == (0, 8)


def test_a_plan_without_an_ending_is_read_as_one(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text("model: qwen2.5-7b\nbatch: {micro_batch: 1, sequence: 8}\n", encoding="utf-8")
    assert main(["kv", str(plan)]) == 0
    assert "57,344 B" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["no-such-model"], "no-such-model"),
        (["llama-3-8b", "--dtype", "bf17"], "--dtype"),
        (["llama-3-8b", "--page", "0"], "--page"),
        (["llama-3-8b", "--tp", "3"], "cannot share 8 key-value heads evenly"),
        (["llama-3-8b", "--tp", "64"], "The nearest that can is 32"),
        (["llama-3-8b", "--units", "kg"], "--units"),
        (["bert-base-uncased"], "model_type"),
    ],
)
def test_what_is_refused(arguments: list[str], word: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", *arguments]) == 2
    assert word in capfd.readouterr().err
