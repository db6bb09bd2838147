"""The examples: five, each with a comment that says what it shows, each of keys that a plan has."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.house.rules import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
KEYS = {
    "model",
    "task",
    "adapter",
    "quantization",
    "trainable",
    "precision",
    "optimizer",
    "batch",
    "parallel",
    "offload",
}
KEYS |= {"stack", "device", "node", "save", "evaluation", "lengths", "roles"}


def test_there_are_five() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_reads(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert set(yaml.safe_load(text)) <= KEYS


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_readme_names_it(path: Path) -> None:
    assert f"examples/{path.name}" in (ROOT / "README.md").read_text(encoding="utf-8")
