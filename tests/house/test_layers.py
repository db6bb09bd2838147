"""The layers: import-linter over the package, and over a small copy of it that breaks the contract."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.rules import PACKAGE, ROOT

LINT = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports(no_cache=True))"
CONFIG = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def lint(folder: Path, path: Path) -> tuple[bool, str]:
    """Run the linter in a folder whose package lies under `path`: whether all is kept, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr


def copy(folder: Path, files: dict[str, str]) -> tuple[bool, str]:
    """Lint a package of empty layers with the project's own contract and these files added."""
    layers = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    package = folder / "trainledger"
    empty = {"__init__.py": "", **{f"{layer}/__init__.py": "" for layer in layers}}
    for name, text in {**empty, **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    (folder / "pyproject.toml").write_text(CONFIG, encoding="utf-8")
    return lint(folder, folder)


def test_the_package_keeps_its_layers() -> None:
    kept, output = lint(ROOT, ROOT / "src")
    assert kept, output


def test_empty_layers_are_kept(tmp_path: Path) -> None:
    kept, output = copy(tmp_path, {})
    assert kept, output


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"base/units.py": "import trainledger.facts"}, id="upward"),
        pytest.param({"facts/rows.py": "def f():\n    import trainledger.cli"}, id="upward, inside a function"),
        pytest.param({"show/table.py": "import trainledger.importers", "importers/__init__.py": ""}, id="sideways"),
        pytest.param({"helpers/__init__.py": ""}, id="a folder that is no layer"),
        pytest.param({"helpers.py": ""}, id="a module that is no layer"),
    ],
)
def test_the_contract_refuses(tmp_path: Path, files: dict[str, str]) -> None:
    kept, output = copy(tmp_path, files)
    assert not kept, output


def test_the_contract_is_exhaustive() -> None:
    contracts = tomllib.loads(CONFIG)["tool"]["importlinter"]["contracts"]
    assert [contract["exhaustive"] for contract in contracts if contract["type"] == "layers"] == [True]
