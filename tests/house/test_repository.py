"""The repository speaks of the project alone, its tests mirror its source, and its promises in files are kept."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.house import rules
from tests.house.rules import ROOT, foreign_words, unmirrored_tests

OWN = Path(__file__).resolve()


def test_the_repository_speaks_of_the_project_alone() -> None:
    offences = [
        str(offence)
        for path in rules.repository_files()
        if path != OWN
        for offence in foreign_words(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not offences, "\n" + "\n".join(offences)


@pytest.mark.parametrize(
    "text",
    [
        "see " + "/".join(("", "work", "main", "x")),
        "cd /root",
        'Path("/tmp/plan.yaml")',
        "pip --index file:///opt/pypi",
        "../shared/records",
        "as DESIGN.md says",
        "closes issue #2",
        "Issue 12",
        "left to a later issue",
        "an earlier session",
        "written by an AI assistant",
    ],
)
def test_foreign_words_are_found(text: str) -> None:
    assert list(foreign_words("sample", text))


@pytest.mark.parametrize(
    "text",
    [
        "the input/work tensors",
        "/".join(("https://example.org", "work", "tmp")),
        "a mesh of 8/tmp ranks",
        "PyTorch issue #12345",
        '@pytest.fixture(scope="session")',
        "$(CURDIR)/tmp",
    ],
)
def test_plain_words_are_not(text: str) -> None:
    assert [str(offence) for offence in foreign_words("sample", text)] == []


def test_repository_files_skips_outputs_only(tmp_path: Path) -> None:
    for name in (".venv/a.py", "src/__pycache__/b.py", "src/c.py", "docs/d.md", ".ci/run", "image.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    found = {str(path.relative_to(tmp_path)) for path in rules.repository_files(tmp_path)}
    assert found == {"src/c.py", "docs/d.md", ".ci/run"}


def test_tests_mirror_the_source() -> None:
    offences = [str(offence) for offence in unmirrored_tests(ROOT / "tests", rules.PACKAGE)]
    assert not offences, "\n" + "\n".join(offences)


def test_a_test_that_mirrors_nothing_is_found(tmp_path: Path) -> None:
    for name in ("package/facts/devices.py", "tests/facts/test_devices_amd.py", "tests/published/test_anything.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    assert not list(unmirrored_tests(tmp_path / "tests", tmp_path / "package"))
    (tmp_path / "tests/facts/test_device.py").write_text("", encoding="utf-8")
    assert len(list(unmirrored_tests(tmp_path / "tests", tmp_path / "package"))) == 1


def test_the_core_install_brings_no_framework() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {requirement.split(">")[0].split("=")[0].strip().lower() for requirement in project["dependencies"]}
    assert names == {"typer", "rich", "pydantic", "pyyaml", "numpy"}


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "LICENSE", "docs/words.md", "docs/sources.md"])
def test_papers_are_there(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").strip()
