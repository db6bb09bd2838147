"""`trainledger checkpoint` prints what `estimate` says of checkpoints, and more of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainledger.cli.main import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAN = str(EXAMPLES / "qwen2.5-7b-zero3.yaml")


def test_it_is_what_the_estimate_has(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", PLAN, "--json"]) == 0
    own = json.loads(capfd.readouterr().out)
    assert main(["estimate", PLAN, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["checkpoint"] == own
    assert own["format"] == "deepspeed"
    assert own["bytes"] == sum(one["bytes"] * one["count"] for one in own["files"])


def test_another_format_and_a_limit(capfd: pytest.CaptureFixture[str]) -> None:
    sets = ["--set", "save={format: safetensors, limit: 2, bandwidth: 1GB}"]
    assert main(["checkpoint", PLAN, *sets, "--units", "GB"]) == 0
    text = capfd.readouterr().out
    assert text.startswith("A checkpoint (safetensors)\n15.23 GB in all")
    assert "3 on disk at most: 45.69 GB" in text
    assert "15.2 s at least to write one" in text
    assert "model.safetensors" in text
    assert main(["checkpoint", PLAN, "--set", "save.format=zip"]) == 2


def test_a_device_of_ones_own_from_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    device = str(EXAMPLES / "devices" / "asic.yaml")
    assert main(["estimate", PLAN, "--device", device, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["device"]
    assert (found["name"], found["usable_bytes"]) == ("asic", 96 * 2**30)
    assert [tier["name"] for tier in found["tiers"]] == ["device memory", "SRAM", "memory pool"]
    assert main(["estimate", PLAN, "--device", "h100-80gb", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["device"]["name"] == "h100-80gb"
    assert main(["estimate", PLAN, "--device", "nothing.yaml"]) == 2


def test_what_other_ranks_read_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    plan = str(EXAMPLES / "llama-3.1-8b-fsdp2.yaml")
    assert main(["checkpoint", plan, "--resume-world", "4", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    read = found["resume"]["read"]
    assert read["ranks"] == 4
    assert read["total_bytes"] == read["stored_bytes"] == found["bytes"]
    assert main(["checkpoint", plan, "--resume", plan]) == 0
    text = capfd.readouterr().out
    assert "Resumed on 8 ranks" in text
    assert "from 2 files; " in text


def test_a_conversion_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", PLAN, "--resume-world", "4"]) == 2
    assert "add --universal" in capfd.readouterr().err
    assert main(["checkpoint", PLAN, "--resume-world", "4", "--universal"]) == 0
    assert "converted first: " in capfd.readouterr().out


def test_where_it_is_resumed_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", PLAN, "--universal"]) == 2
    assert main(["checkpoint", PLAN, "--resume", PLAN, "--resume-world", "4"]) == 2
    assert "Give one of them" in capfd.readouterr().err


def test_no_rank_is_a_number_that_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", PLAN, "--resume-world", "0"]) == 2
    assert "--resume-world: found 0" in capsys.readouterr().err
