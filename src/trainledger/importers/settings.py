"""What a program was told, by the names of its arguments: each read as the kind it is, problems with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.problems import Problem
from trainledger.importers.piece import Piece

_VARIABLE = re.compile(r"\$\{?(\w+)")
_OFF = ("false", "False", "no", "0")
_WHOLE = re.compile(r"[-+]?\d{1,15}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by name: True for a name alone, a text, a number, or a list. `places`: where each stands (`file:line
    name`). Problems are noted in `piece`."""

    values: Mapping[str, Any]
    places: Mapping[str, str]
    piece: Piece

    def has(self, name: str) -> bool:
        """Whether it is given, and not turned off."""
        return self.values.get(name) not in (None, False, "", *_OFF)

    def said(self, name: str) -> bool:
        """Whether it is given, if only as 0."""
        value = self.values.get(name)
        return value is not None and value is not False and value != ""

    def where(self, name: str) -> str:
        """Where it stands."""
        return self.places.get(name, name)

    def whole(self, name: str, least: int = 1) -> int | None:
        """A whole number of at least `least`; None where it is left out or no such number (which is noted)."""
        value = self._one(name, "a whole number")
        if value is None:
            return None
        text = str(value).strip()
        number = int(text) if _WHOLE.fullmatch(text) else None
        if number is None and isinstance(value, float) and value.is_integer():
            number = int(value)
        if number is None or number < least or isinstance(value, bool):
            self.refuse(name, value, f"a whole number of at least {least} is needed")
            return None
        return number

    def number(self, name: str) -> float | None:
        """A number that is not negative; None where it is left out or none."""
        value = self._one(name, "a number")
        if value is None:
            return None
        try:
            number = float(str(value))
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            self.refuse(name, value, "a number that is not negative is needed")
            return None
        return number

    def text(self, name: str) -> str | None:
        """A word; None where it is left out."""
        value = self._one(name, "a value")
        return None if value is None else str(value)

    def choice(self, name: str, known: Mapping[str, str]) -> str | None:
        """What a word stands for; None where it is left out or not known (which is noted)."""
        value = self.text(name)
        if value is not None and value not in known:
            self.refuse(name, value, f"one of {', '.join(known)} is known")
        return known.get(value) if value is not None else None

    def texts(self, name: str) -> list[str]:
        """Words; a text is split at spaces and commas."""
        value = self.values.get(name)
        if not self.has(name) or value is True:
            return []
        parts = value if isinstance(value, list) else [value]
        return [word for part in parts for word in re.split(r"[\s,]+", str(part)) if word]

    def give(self, path: str, value: Any, name: str) -> None:
        """Say a key of the plan that this name gave; None says nothing."""
        if value is not None:
            self.piece.give(path, value, self.where(name))

    def refuse(self, name: str, value: Any, allowed: str, fix: str = "") -> None:
        """Note a value that cannot be read."""
        found = f"found {str(value)[:60]!r}"
        variable = _VARIABLE.search(str(value).split("$(", 1)[0]) or _VARIABLE.search(str(value).partition("$((")[2])
        if variable:
            fix = f"Give it with --env {variable.group(1)}=..."
        self.refuse_name(name, found, allowed, fix)

    def refuse_name(self, name: str, found: str, allowed: str, fix: str = "") -> None:
        """Note a problem with a name, once."""
        problem = Problem(name, found, allowed, fix, self.where(name).rpartition(" ")[0] or self.piece.name)
        if problem not in self.piece.problems:
            self.piece.problems.append(problem)

    def _one(self, name: str, needed: str) -> Any:
        """The single value of a name; a name alone, or with several values, is noted."""
        value = self.values.get(name)
        if value is None or value is False:
            return None
        if value is True:
            self.refuse_name(name, "no value", f"{needed} is needed")
            return None
        if isinstance(value, list):
            if len(value) != 1:
                self.refuse(name, " ".join(map(str, value)), f"{needed} is needed")
                return None
            return value[0]
        return value
