"""`--set key.path=value`: changes to a plan on the command line, before it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainledger.base.problems import InputError, Problem, wrong
from trainledger.facts.options import OPTION_MAPS
from trainledger.importers.document import SET, Document, Path
from trainledger.importers.yaml_text import parse_yaml

_BARE: dict[Path, str] = {
    ("model",): "name", ("device",): "name", ("node",): "name", ("lengths",): "file", ("stack", "recompute"): "kind",
}  # fmt: skip
MAP_DEPTH = len(("stack", "options"))
MAPS = (*OPTION_MAPS, "stack.versions")  # free maps: null leaves a name out
_EXAMPLE = "--set takes key.path=value, such as --set batch.micro_batch=4"


def apply_sets(document: Document, sets: Sequence[str]) -> Document:
    """The document with every change applied, in order. The document itself is left as it is.

    Values are YAML (`null`, `[a, b]`, `8e9`), package versions are taken as the text they are; null leaves a name of a
    free map out. Raises InputError with
    every change that is malformed; keys that the format does not have are found when the plan is checked.
    """
    if not sets:
        return document
    data, places = document.data, dict(document.places)
    problems: list[Problem] = []
    if data is None:
        data = {}
    for text in sets:
        try:
            path, value = _change(text)
            data = _put(data, path, value, text)
            places[path] = f"{SET}{_short(text)}"
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    return Document(data, places)


def _change(text: str) -> tuple[Path, Any]:
    key, equals, value = text.partition("=")
    path: Path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise wrong("", f"--set {_short(text)}", _EXAMPLE)
    if path[:2] == ("stack", "versions") and path[2:] and value.strip() not in ("null", "~"):
        return path, value.strip().strip("\"'")  # 2.10 is a version, not the number 2.1
    try:
        return path, parse_yaml(value, "").data
    except InputError as error:
        raise wrong(
            ".".join(map(str, path)), f"--set {_short(text)}: {error.problems[0].found}", "the value is YAML"
        ) from None


def _put(data: Any, path: Path, value: Any, text: str) -> Any:
    """A copy of `data` with `value` at `path`; mappings on the way are made where there are none."""
    return _at(data, path, (), (value, text))


def _at(data: Any, path: Path, done: Path, change: tuple[Any, str]) -> Any:
    if not path:
        return change[0]
    if isinstance(data, str) and done in _BARE:
        data = {_BARE[done]: data}
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise wrong(".".join(map(str, done)), f"--set {_short(change[1])}", "this key has no keys below it")
    if len(path) == 1 and change[0] is None and ".".join(map(str, done[:MAP_DEPTH])) in MAPS:
        return {key: value for key, value in data.items() if key != path[0]}
    return {**data, path[0]: _at(data.get(path[0]), path[1:], (*done, path[0]), change)}


def _short(text: str) -> str:
    plain = text if text.isprintable() else ascii(text)[1:-1]
    return plain[:80]
