"""Files of the shapes that people have, each with the draft (or the problems) that it makes, kept beside them.

`--update-golden` writes what is kept anew. A folder is one case, read as it stands, or as its READ says: the files to
give, one a line; `_with.yaml` of a format is given after each of its cases, and `_sets` has changes of keys.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers import native
from trainledger.base.problems import InputError
from trainledger.importers.formats import format_of
from trainledger.importers.inputs import read_input
from trainledger.importers.outside import read_any
from trainledger.plan.schema import as_mapping

HERE = Path(__file__).parent
FILES, GOLDEN = HERE / "files", HERE / "golden"
CASES = sorted(
    path.relative_to(FILES).as_posix()
    for folder in FILES.iterdir()
    for path in folder.iterdir()
    if not path.name.startswith("_")
)


def sources(case: str) -> list[str]:
    path = Path(case)
    asked = path / "READ"
    given = [f"{case}/{name}" for name in asked.read_text().split()] if asked.exists() else [case]
    beside = path.parent / "_with.yaml"
    return [*given, beside.as_posix()] if beside.exists() else given


def sets(case: str) -> list[str]:
    path = Path(case)
    asked = next((one for one in (path / "_sets", path.parent / "_sets") if one.exists()), None)
    return asked.read_text().split() if asked else []


def told(case: str) -> dict[str, Any]:
    """What a case comes to, as plain data."""
    try:
        draft = read_any(sources(case), sets(case))
    except InputError as error:
        return {"problems": [str(problem) for problem in error.problems]}
    plan = as_mapping(draft.plan)
    plan["model"] = plan["model"].get("name", plan["model"])
    return {
        "formats": [list(one) for one in draft.formats],
        "plan": plan,
        "used": {one.path: one.where for one in draft.used if not one.path.startswith("model.")},
        "ignored": {one.path: one.why for one in draft.ignored},
        "unknown": {one.path: [one.where, one.near] for one in draft.unknown},
        "uncounted": {one.path: [one.where, one.direction] for one in draft.uncounted},
    }


@pytest.mark.parametrize("case", CASES)
def test_a_file_makes_its_draft(case: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(FILES)
    kept = GOLDEN / f"{case}.golden.json"
    found = json.loads(json.dumps(told(case)).replace(str(FILES), "."))
    if request.config.getoption("--update-golden"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(kept.read_text(encoding="utf-8"))


def test_no_golden_is_left_behind() -> None:
    kept = {path.relative_to(GOLDEN).as_posix().removesuffix(".golden.json") for path in GOLDEN.rglob("*.golden.json")}
    assert kept == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_what_is_broken_says_so_and_nothing_else_does(case: str) -> None:
    broken = "problems" in json.loads((GOLDEN / f"{case}.golden.json").read_text(encoding="utf-8"))
    assert broken == Path(case).name.startswith("broken_")


NATIVE = [(name, path) for name in native.FORMATS for path in native.cases(name)]
NATIVE_BROKEN = [path for name in native.FORMATS for path in native.broken(name)]


@pytest.mark.parametrize(("name", "path"), NATIVE, ids=native.ids([path for _, path in NATIVE]))
def test_what_is_read_of_a_native_trainers_file(name: str, path: Path) -> None:
    assert format_of(read_input(str(path))) == name
    assert native.drafted(path) == path.with_name(path.name + native.GOLDEN).read_text(encoding="utf-8")
    draft = read_any([str(path)])
    assert draft.plan.stack.framework == name
    assert draft.formats == ((str(path), name),)
    assert draft.unknown == ()


@pytest.mark.parametrize("path", NATIVE_BROKEN, ids=native.ids(NATIVE_BROKEN))
def test_what_is_refused_of_a_native_trainers_file(path: Path) -> None:
    expected = path.with_name(path.name + ".txt").read_text(encoding="utf-8")
    assert expected.strip()
    assert native.messages(path) == expected


@pytest.mark.parametrize("name", native.FORMATS)
def test_enough_native_files_are_read(name: str) -> None:
    assert len(native.cases(name)) > 10
    assert len(native.broken(name)) > 5
