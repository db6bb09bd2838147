"""Whole-number arithmetic of a shell, `$((...))` and `expr`, over the values of its variables, without running it."""

from __future__ import annotations

import re
from collections.abc import Callable

from trainledger.facts.limits import NESTING, SHELL_NUMBER

OPENED, CLOSED = "$((", "))"
_TOKEN = re.compile(r"\s*(\d{1,18}|\$?\{?[A-Za-z_]\w*\}?|[-+*/%()])")
Held = Callable[[str], str | None]  # what a variable holds, None where it is not known


class _UnknownError(Exception):
    """The text is no arithmetic over known whole numbers."""


def reckoned(text: str, held: Held) -> int | None:
    """The value of an expression of +, -, *, /, % and brackets; None where a name is not known or it is none."""
    try:
        return _Reader(text, held, 0).whole()
    except _UnknownError:
        return None


class _Reader:
    """A recursive descent over the tokens of an expression. Raises _UnknownError."""

    def __init__(self, text: str, held: Held, depth: int) -> None:
        if depth > NESTING.value:
            raise _UnknownError
        self.held, self.depth, self.tokens = held, depth, list[str]()
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise _UnknownError
            self.tokens.append(match.group(1))
            at = match.end()

    def whole(self) -> int:
        value = self._sum()
        if self.tokens:
            raise _UnknownError
        return value

    def _next(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def _sum(self) -> int:
        value = self._product()
        while self._next() in ("+", "-"):
            sign = self.tokens.pop(0)
            other = self._product()
            value = self._bounded(value + other if sign == "+" else value - other)
        return value

    def _product(self) -> int:
        value = self._atom()
        while self._next() in ("*", "/", "%"):
            sign, other = self.tokens.pop(0), self._atom()
            if sign != "*" and not other:
                raise _UnknownError
            whole = abs(value) // abs(other or 1) * (1 if (value < 0) == (other < 0) else -1)  # a shell cuts towards 0
            value = self._bounded({"*": value * other, "/": whole, "%": value - whole * other}[sign])
        return value

    def _bounded(self, value: int) -> int:
        if abs(value) > SHELL_NUMBER.value:
            raise _UnknownError
        return value

    def _atom(self) -> int:
        self.depth += 1
        if not self.tokens or self.depth > NESTING.value:
            raise _UnknownError
        token = self.tokens.pop(0)
        if token.isdigit():
            return int(token)
        if token == "-":
            return -self._atom()
        if token == "(":
            value = self._sum()
            if self._next() != ")":
                raise _UnknownError
            self.tokens.pop(0)
            return value
        held = None if token in "+*/%)" else self.held(token.strip("${}"))
        if held is None:
            raise _UnknownError
        inner = held.strip()
        if inner.startswith(OPENED) and inner.endswith(CLOSED):
            inner = inner[len(OPENED) : -len(CLOSED)]
        return _Reader(inner, self.held, self.depth).whole()
