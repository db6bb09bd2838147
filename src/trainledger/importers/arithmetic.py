"""`$((...))` in a script: whole-number arithmetic over its variables, worked out without a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainledger.facts.limits import NESTING, SHELL_NUMBER
from trainledger.importers.shell_words import Word

_TOKEN = re.compile(r"\s*(\d{1,18}|\$?\{?[A-Za-z_]\w*\}?|[-+*/%()])")
_OPENED, _CLOSED = "$((", "))"


class _UnknownError(Exception):
    """The text is no arithmetic over known whole numbers."""


def worked_out(words: Sequence[Word], env: Mapping[str, Word]) -> tuple[Word, ...]:
    """The words with every `$((...))` replaced by its value; what cannot be worked out stays as it is.

    Such a text that was split at its spaces is joined again first.
    """
    return tuple(_worked_out(word, env) for word in _joined(words))


def _joined(words: Sequence[Word]) -> list[Word]:
    out: list[Word] = []
    for word in words:
        before = out[-1].text if out else ""
        if out and before.rfind(_OPENED) > before.rfind(_CLOSED):
            out[-1] = replace(out[-1], text=f"{before} {word.text}")
        else:
            out.append(word)
    return out


def _worked_out(word: Word, env: Mapping[str, Word]) -> Word:
    opened = word.text.find(_OPENED)
    closed = word.text.rfind(_CLOSED)
    if opened < 0 or closed < opened:
        return word
    found = value_of(word.text[opened + len(_OPENED) : closed], env)
    if found is None:
        return word
    text = word.text[:opened] + str(found) + word.text[closed + len(_CLOSED) :]
    return replace(word, text=text, known="$" not in text)


def value_of(text: str, env: Mapping[str, Word]) -> int | None:
    """The value of an expression of +, -, *, /, % and brackets; None where a name is not known or it is none."""
    try:
        return _Reader(text, env, 0).whole()
    except _UnknownError:
        return None


class _Reader:
    """A recursive descent over the tokens of an expression. Raises _UnknownError."""

    def __init__(self, text: str, env: Mapping[str, Word], depth: int) -> None:
        if depth > NESTING.value:
            raise _UnknownError
        self.env, self.depth, self.tokens = env, depth, list[str]()
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
            value = self._bounded(value * other if sign == "*" else value // other if sign == "/" else value % other)
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
        held = self.env.get(token.strip("${}"))
        if held is None or token in "+*/%)":
            raise _UnknownError
        inner = held.text.strip()
        if inner.startswith(_OPENED) and inner.endswith(_CLOSED):
            inner = inner[len(_OPENED) : -len(_CLOSED)]
        return _Reader(inner, self.env, self.depth).whole()
