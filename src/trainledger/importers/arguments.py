"""Arguments by name, from a file or a command line, read as the kinds that a key takes; what is no such kind is a
problem with its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trainledger.base.problems import InputError
from trainledger.importers.loose_json import parse_loose_json
from trainledger.importers.piece import AUTO, Given, Piece
from trainledger.importers.yaml_text import parse_yaml, scalar
from trainledger.plan.text import shown

_TRUE = ("true", "yes", "on", "1", "y", "t")
_FALSE = ("false", "no", "off", "0", "n", "f", "none", "null", "")
_NOTHING = ("none", "null")


class Arguments:
    """Named values with their places. Each method takes names of which the first that is given counts; it returns None
    where none is given, where its value is null or `auto`, and where it is of another kind, which is noted."""

    def __init__(self, given: Mapping[str, Given], piece: Piece) -> None:
        self.given, self.piece = given, piece

    def has(self, *names: str) -> bool:
        """Whether one of these has a value other than null."""
        return self.raw(*names) is not None

    def raw(self, *names: str) -> Any:
        """The value as it is given."""
        name = self.name(*names)
        return self.given[name].value if name else None

    def name(self, *names: str) -> str:
        """Which of these is given; empty where none is."""
        return next((name for name in names if name in self.given and self.given[name].value is not None), "")

    def where(self, *names: str) -> str:
        """The place of the first that is given."""
        name = self.name(*names)
        return self.given[name].where if name else ""

    def flag(self, *names: str) -> bool | None:
        """A truth value: also 1 and 0, and the words that command lines have for them."""
        value = self.raw(*names)
        if value is None or isinstance(value, bool) or value == AUTO:
            return None if value == AUTO else value
        word = str(value).strip().lower() if isinstance(value, str | int) else ""
        if word in _TRUE or (word in _FALSE and isinstance(value, str | int)):
            return word in _TRUE
        self._wrong(names, value, "true or false")
        return None

    def whole(self, *names: str, least: int = 0) -> int | None:
        """A whole number of at least `least`."""
        value = self.number(*names)
        if value is None:
            return None
        if not float(value).is_integer() or value < least:
            self._wrong(names, self.raw(*names), f"a whole number of {least} or more")
            return None
        return int(value)

    def number(self, *names: str) -> int | float | None:
        """A number."""
        raw = self.raw(*names)
        value = scalar(raw.strip()) if isinstance(raw, str) else raw
        if value is None or raw == AUTO:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(names, raw, "a number")
            return None
        try:
            if math.isfinite(value):
                return value
        except OverflowError:
            pass
        self._wrong(names, raw, "a number that is finite")
        return None

    def text(self, *names: str) -> str | None:
        """A text; `none` and `null` are no text."""
        value = self.raw(*names)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if value is None or isinstance(value, str):
            return value.strip() if value and value.strip().lower() not in _NOTHING else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(names, value, "a text")
            return None
        return str(value)

    def texts(self, *names: str) -> list[str] | None:
        """A list of texts: also one text with commas or spaces, or a list that is written as one in JSON or YAML."""
        value = self.raw(*names)
        if isinstance(value, str) and value.strip().startswith("["):
            value = self._parsed(value)
        if isinstance(value, str):
            value = value.replace(",", " ").split()
        if value is None or value == []:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            self._wrong(names, value, "a list of names")
            return None
        return [part for one in value for part in one.replace(",", " ").split()]

    def mapping(self, *names: str) -> dict[str, Any] | None:
        """A mapping, also as JSON in a text."""
        value = self.raw(*names)
        if isinstance(value, str) and value.strip().startswith("{"):
            value = self._parsed(value)
        if value is None or isinstance(value, dict):
            return value
        self._wrong(names, value, "a mapping")
        return None

    def below(self, *names: str) -> Arguments:
        """The arguments inside a mapping, under its place; none where it is not given."""
        where, inner = self.where(*names), self.mapping(*names) or {}
        return Arguments({str(key): Given(value, f"{where}.{key}") for key, value in inner.items()}, self.piece)

    def _parsed(self, text: str) -> Any:
        try:
            return parse_loose_json(text, "").data
        except InputError:
            try:
                return parse_yaml(text, "").data
            except InputError:
                return text

    def _wrong(self, names: tuple[str, ...], value: Any, allowed: str) -> None:
        name = self.name(*names)
        self.piece.refuse(name, f"found {shown(value)}", f"{allowed} is needed", where=self.where(name))
