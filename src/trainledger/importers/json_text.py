"""JSON text to plain data with line numbers: duplicates reported, depth bounded."""

from __future__ import annotations

import json
import re
from typing import Any

from trainledger.importers.document import Builder, Document, Path

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_VALID = "JSON is an object, an array, a text in double quotes, a number, true, false or null"


def parse_json(text: str, name: str) -> Document:
    """The document of a JSON text. Raises InputError with the line for broken JSON or a key given twice."""
    reader = _Reader(text, name)
    data = reader.value(())
    reader.skip()
    if reader.at < len(text):
        reader.fail("text after the end of the value")
    return reader.builder.finish(data)


class _Reader:
    """A recursive descent over the text, as deep as the bound on nesting allows."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.at = text, 0
        self.builder = Builder(name)
        self._line, self._counted = 1, 0

    def line(self) -> int:
        self._line += self.text.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def fail(self, found: str) -> None:
        self.builder.fail(self.line(), f"broken JSON: {found}", _VALID)

    def skip(self) -> str:
        """The next character that is no space; empty at the end."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def value(self, path: Path) -> Any:
        first = self.skip()
        self.builder.enter(path, self.line())
        if first == "{":
            return self._object(path)
        if first == "[":
            return self._array(path)
        if not first:
            self.fail("the text ends where a value is expected")
        return self._scalar()

    def _scalar(self) -> Any:
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = min(error.pos, len(self.text))
            self.fail(error.msg)
        except ValueError:
            self.fail("a number of too many digits")
        return value

    def _object(self, path: Path) -> dict[str, Any]:
        self.at += 1
        into: dict[str, Any] = {}
        if self.skip() == "}":
            self.at += 1
            return into
        while True:
            if self.skip() != '"':
                self.fail("a key in double quotes is expected")
            line, key = self.line(), self._scalar()
            self.builder.key(into, path, key, line)
            self._expect(":")
            into[key] = self.value((*path, key))
            if self._more("}"):
                return into

    def _array(self, path: Path) -> list[Any]:
        self.at += 1
        into: list[Any] = []
        if self.skip() == "]":
            self.at += 1
            return into
        while True:
            self.skip()
            self.builder.places[(*path, len(into))] = self.builder.place(self.line())
            into.append(self.value((*path, len(into))))
            if self._more("]"):
                return into

    def _expect(self, mark: str) -> None:
        if self.skip() != mark:
            self.fail(f"a {mark} is expected")
        self.at += 1

    def _more(self, end: str) -> bool:
        """Whether the container ends here; a comma goes on."""
        mark = self.skip()
        if mark not in (",", end) or not mark:
            self.fail(f"a comma or a {end} is expected")
        self.at += 1
        return mark == end
