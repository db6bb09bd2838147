"""Words of a shell's line: quotes, escapes, variables, arrays and whole-number arithmetic, without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from trainledger.importers.reckoning import CLOSED, OPENED, reckoned

CONTINUED = "\f"  # stands for a line that a backslash continues
JOINED = "[*]"  # all of an array, in quotes one text
_NAME = re.compile(r"[A-Za-z_]\w*")
_BRACED = re.compile(r"\{([A-Za-z_]\w*)(\[@\]|\[\*\])?(?:(:?[-=+?])(.*))?\}", re.S)
_REDIRECT = re.compile(r"(?:\d*(?:>>|>\||>|<<<|<)&?|&>>?)[ \t]*(?:\d+|-|\"[^\"\n]*\"|(?:\$\([^)]*\)|[^\s;|&<>()])*)")
BEFORE = ("then", "else", "do", "!", "{", "(")  # words that a command may follow


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command, unquoted and expanded, and where it stands. `known`: nothing in it was left unexpanded;
    `mark`: it ends a command (`;`, `&&`, ...)."""

    text: str
    where: str
    known: bool = True
    mark: bool = False


class Shell(Protocol):
    """What words are expanded with."""

    arrays: dict[str, list[Word]]

    def place(self, number: int) -> str:
        """`file:line` of a line."""

    def words(self, text: str, number: int) -> list[Word]:
        """The words of another text."""

    def value(self, name: str) -> Word | None:
        """What a variable holds."""


class Lexer:
    """Splits a text into words: quotes, escapes, variables; unquoted variables are split at spaces. `commands`: of
    commands, whose subshells and line ends part them; else of a command's words."""

    def __init__(self, shell: Shell, text: str, number: int, commands: bool = False) -> None:
        self.shell, self.text, self.number, self.at = shell, text, number, 0
        self.commands, self.subshells, self.inner = commands, 0, 0  # how many of each kind of bracket are open
        self.word, self.begun, self.known = "", False, True
        self.out: list[Word] = []

    def __iter__(self) -> Iterator[Word]:
        """The words, each as it is read: what a command sets is known to the next one of its line."""
        given = 0
        while self.at < len(self.text):
            self._step(self.text[self.at])
            yield from self.out[given:]
            given = len(self.out)
        self._end()
        yield from self.out[given:]

    def _end(self) -> None:
        if self.begun:
            self.out.append(Word(self.word, self.shell.place(self.number), self.known))
        self.word, self.begun, self.known = "", False, True

    def _add(self, text: str, known: bool = True) -> None:
        self.word += text
        self.begun, self.known = True, self.known and known

    def _step(self, char: str) -> None:
        if not self.begun and (match := _REDIRECT.match(self.text, self.at)):
            self.at = match.end()  # where output goes is no word of the command
        elif char.isspace():
            self._end()
            if char == "\n" and self.commands:
                self._mark(char)
                return
            self.number += char in ("\n", CONTINUED)
            self.at += 1
        elif char == "#" and not self.begun:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char == "'":
            end = self.text.find("'", self.at + 1)
            end = len(self.text) if end < 0 else end
            self._add(self.text[self.at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self._double()
        elif char == "\\":
            self._add(self.text[self.at + 1 : self.at + 1 + 1])
            self.at += len("\\x")
        elif char == "$" or char == "`":
            self._variable(quoted=False)
        elif char in ";|&":
            two = self.text[self.at : self.at + len("&&")]
            self._mark(two if two in ("&&", "||") else char)
        elif char in "()" and self._parts(char):
            self._mark(char)
        else:
            self.inner += (char == "(") - (char == ")")
            self._add(char)
            self.at += 1

    def _mark(self, mark: str) -> None:
        """End the command before a mark."""
        self._end()
        self.out.append(Word(mark, self.shell.place(self.number), mark=True))
        self.number += mark == "\n"
        self.at += len(mark)

    def _parts(self, bracket: str) -> bool:
        """Whether a bracket opens a subshell, which stands where a command begins, or closes one."""
        if bracket == ")":
            closes = self.subshells > 0 and self.inner <= 0
            self.subshells -= closes
            return closes
        last = self.out[-1] if self.out else None
        opens = self.commands and not self.begun and (last is None or last.mark or last.text in BEFORE)
        self.subshells += opens
        self.inner = 0 if opens else self.inner
        return opens

    def _double(self) -> None:
        self.at += 1
        self.begun = True
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 1 + 1] in ('"', "\\", "$", "`"):
                self._add(self.text[self.at + 1])
                self.at += len("\\x")
            elif char in "$`":
                self._variable(quoted=True)
            else:
                self.number += char in ("\n", CONTINUED)
                self._add("" if char == CONTINUED else char)
                self.at += 1
        self.at += 1

    def _variable(self, quoted: bool) -> None:
        if self.text[self.at] == "`" or self.text.startswith("$(", self.at):
            self._substitution()
            return
        if match := _BRACED.match(self._braced()):
            self.at += 1 + len(match.group(0))
            name, every, mark, default = match.groups(default="")
            self._expand(name, mark, default, quoted, every)
        elif match := _NAME.match(self.text, self.at + 1):
            self.at = match.end()
            self._expand(match.group(0), "", "", quoted, "")
        else:
            self._add(self.text[self.at : self.at + len("$x")], known=False)
            self.at += len("$x")

    def _braced(self) -> str:
        """The text of `{...}` after a dollar sign, with the braces inside it matched."""
        if not self.text.startswith("${", self.at):
            return ""
        depth = 0
        for end in range(self.at + 1, len(self.text)):
            depth += (self.text[end] == "{") - (self.text[end] == "}")
            if not depth:
                return self.text[self.at + 1 : end + 1]
        return ""

    def _substitution(self) -> None:
        """What a command would print is not known: the text stands for it. Whole numbers are reckoned."""
        opened = self.at
        if self.text.startswith(OPENED, opened) and self.text.endswith(CLOSED, opened, self._closed(opened + 1) + 1):
            self.at = self._closed(opened + 1) + 1
            inner = self.text[opened + len(OPENED) : self.at - len(CLOSED)]
            found = reckoned(inner, self._held)
            self._add(self.text[opened : self.at] if found is None else str(found), known=found is not None)
            return
        end = self.text.find("`", opened + 1) if self.text[opened] == "`" else self._closed(opened + 1)
        self.at = len(self.text) if end < 0 else end + 1
        self._add(self.text[opened : self.at], known=False)

    def _held(self, name: str) -> str | None:
        held = self.shell.value(name)
        return None if held is None else held.text

    def _closed(self, at: int) -> int:
        """Where the bracket that opens at `at` closes; below 0 where it does not."""
        depth = 0
        for place in range(at, len(self.text)):
            depth += (self.text[place] == "(") - (self.text[place] == ")")
            if not depth:
                return place
        return -1

    def _expand(self, name: str, mark: str, default: str, quoted: bool, every: str) -> None:
        held = self.shell.value(name)
        if held is not None and mark.endswith("+"):
            held = Word(default, held.where)
        elif (held is None or not held.text) and mark.endswith(("-", "=")):
            inner = self.shell.words(default, self.number)
            held = Word(
                " ".join(word.text for word in inner), self.shell.place(self.number), all(w.known for w in inner)
            )
        if held is None and mark.endswith("+"):
            return
        if held is None:
            self._add(f"${name}", known=False)
            return
        if quoted and every == JOINED and name in self.shell.arrays:  # "${A[*]}" is one text
            words = self.shell.arrays[name]
            self._add(" ".join(word.text for word in words), all(word.known for word in words))
            return
        if every and name in self.shell.arrays:
            self.begun = bool(self.word)  # an array in quotes begins no word of its own
            self._end()
            self.out += self.shell.arrays[name]
            return
        if quoted:
            self._add(held.text, held.known)
            return
        parts = held.text.split()
        for number, part in enumerate(parts):
            if number:
                self._end()
            self._add(part, held.known)
