"""YAML text to plain data with line numbers: duplicates reported, depth and aliases bounded.

Scalars are read as YAML 1.2 does (8e9 is a number, 12:30 and 2024-01-01 are texts), and yes, no, on, off as truth
values, as users of YAML 1.1 expect. Keys are always texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from trainledger.base.problems import InputError, Problem
from trainledger.importers.document import Builder, Document, Path

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUTH = {
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_TAGS = {"tag:yaml.org,2002:" + name for name in ("str", "int", "float", "bool", "null", "map", "seq")}
_STR = "tag:yaml.org,2002:str"


def parse_yaml(text: str, name: str) -> Document:
    """The document of a YAML text. Raises InputError with the line for broken YAML or a key given twice."""
    try:
        reader = _Reader(yaml.parse(text, Loader=_LOADER), name)
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise InputError([_broken(error, text, Builder(name).place(line), line)]) from None
    except (yaml.YAMLError, UnicodeError):
        found = "broken YAML: a character that YAML does not allow"
        raise InputError([Problem("", found, "text in UTF-8 without control characters", where=name)]) from None


def _broken(error: yaml.MarkedYAMLError, text: str, where: str, line: int) -> Problem:
    """What is wrong with a line; a tab ahead of a key is named as that."""
    shown = text.splitlines()[line - 1] if line <= len(text.splitlines()) else ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        return Problem("", "broken YAML: a tab in front of a key", "YAML indents by spaces", "Write spaces.", where)
    found = f"broken YAML: {error.problem or error.context or 'it does not parse'}"
    return Problem("", found, "a YAML mapping is expected", where=where)


def scalar(text: str) -> Any:
    """What a plain (unquoted) scalar means: null, a truth value, a number, or the text itself."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    try:
        if _INT.fullmatch(text):
            return int(text.replace("_", ""))
        if _HEX.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text) and not re.fullmatch(r"[-+]?0[0-9_]+", text):
            return float(text.replace("_", ""))
    except ValueError:  # more digits than a number may have
        return text
    return float(_SPECIAL[text.lower()]) if text.lower() in _SPECIAL else text


class _Reader:
    """A recursive descent over the parser's events, as deep as the bound on nesting allows."""

    def __init__(self, events: Iterator[Any], name: str) -> None:
        self.events = events
        self.builder = Builder(name)
        self.anchors: dict[str, Any] = {}

    def document(self) -> Document:
        data, seen = None, False
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    self.builder.fail(_line(event), "a second document", "a file holds one document")
                seen, data = True, self._value(next(self.events), ())
        return self.builder.finish(data)

    def _value(self, event: Any, path: Path) -> Any:
        self.builder.enter(path, _line(event))
        if isinstance(event, yaml.AliasEvent):
            if str(event.anchor) not in self.anchors:
                self.builder.fail(
                    _line(event), f"alias *{event.anchor}", "an alias names an anchor that ended before it"
                )
            return self._again(self.anchors[str(event.anchor)], path, _line(event))
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", *_TAGS):
            self.builder.fail(_line(event), f"tag {tag}", "only YAML's plain types are read")
        if isinstance(event, yaml.ScalarEvent):
            value: Any = (
                scalar(event.value) if (event.implicit[0] and tag is None) or tag in _TAGS - {_STR} else event.value
            )
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(path)
        else:
            value = self._sequence(path)
        if event.anchor:
            self.anchors[event.anchor] = value
        return value

    def _mapping(self, path: Path) -> dict[str, Any]:
        into: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self.builder.fail(_line(event), "a key that is no text", "keys are names")
            if event.value == "<<" and event.implicit[0]:
                self.builder.fail(_line(event), "a merge key (<<)", "keys are written out where they are meant")
            self.builder.key(into, path, event.value, _line(event))
            into[event.value] = self._value(next(self.events), (*path, event.value))
        return into

    def _sequence(self, path: Path) -> list[Any]:
        into: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            self.builder.places[(*path, len(into))] = self.builder.place(_line(event))
            into.append(self._value(event, (*path, len(into))))
        return into

    def _again(self, value: Any, path: Path, line: int) -> Any:
        """A copy of an anchored value, counted like any other: aliases of aliases meet the bound on values."""
        if isinstance(value, dict):
            for item in value:
                self.builder.enter((*path, item), line)
            return {item: self._again(part, (*path, item), line) for item, part in value.items()}
        if isinstance(value, list):
            for at in range(len(value)):
                self.builder.enter((*path, at), line)
            return [self._again(part, (*path, at), line) for at, part in enumerate(value)]
        return value


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
