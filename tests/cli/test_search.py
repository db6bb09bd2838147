"""`trainledger search`: its table and JSON, files that it writes, a search that goes on, words that mean nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Command

SMALL = ("--devices", "8xrtx4090", "--global-batch", "64", "--sequence", "4096", "--framework", "transformers")
ASKED = ("gpt2", *SMALL, "--top", "2", "--jobs", "1")


@pytest.fixture
def run(run: Command) -> Command:
    """Run `search`."""
    return partial(run, "search")


def test_the_table_and_the_progress(run: Command) -> None:
    code, out, err = run(*ASKED)
    assert code == 0
    assert "Fastest plans that fit" in out
    assert "tokens/s/device" in out
    assert "plans, " in err


def test_json_a_plan_s_file_and_a_state(run: Command, tmp_path: Path) -> None:
    plan, state = tmp_path / "best.yaml", tmp_path / "state.jsonl"
    code, out, err = run(*ASKED, "--json", "-q", "-o", str(plan), "--state", str(state))
    assert (code, err) == (0, "")
    first = json.loads(out)
    assert len(first["ranked"]) == 2
    assert "strategy" in plan.read_text(encoding="utf-8")
    kept = state.read_bytes()
    code, out, err = run(*ASKED, "--json", "-q", "--state", str(state))
    assert (code, err) == (0, "")
    assert json.loads(out)["ranked"] == first["ranked"]
    assert state.read_bytes() == kept
    code, out, err = run(*ASKED, "-q", "-o", str(plan))
    assert (code, out) == (2, "")
    assert "--force" in err


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--devices", "h100"), "64xh100-80gb"),
        (("--devices", "8xh100-80g"), "h100-80gb"),
        (("--framework", "jax"), "--framework"),
        (("--backend", "dusk"), "dask"),
        (("--units", "gib"), "GiB"),
    ],
)
def test_what_means_nothing_is_named(run: Command, more: tuple[str, str], named: str) -> None:
    code, out, err = run(*ASKED, *more)
    assert (code, out) == (2, "")
    assert named in err
