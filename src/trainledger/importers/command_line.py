"""Words of a command to arguments by name, and the command of a script that has most of a program's arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainledger.facts.import_launch import WRAPPERS
from trainledger.facts.limits import SHELLS
from trainledger.importers.arithmetic import worked_out
from trainledger.importers.launchers import behind
from trainledger.importers.script import Command, Script, parse_script
from trainledger.importers.shell_words import Word

_REDIRECTED = re.compile(r"\d*>>?.*|<.*")
PRINTED = ("echo", "printf", "cat", "tee")
_BROKEN = re.compile(r"\s*\n\s*(?=-)")  # a line end before an argument, which a backslash has joined
_OTHERS = re.compile(r"\"?\$\{?[@*0-9].*")  # the script's own arguments


@dataclass(frozen=True, slots=True)
class Line:
    """A command that runs a program: words before it (its launcher's), the program, and its arguments."""

    launcher: tuple[Word, ...]
    program: Word
    words: tuple[Word, ...]
    command: Command


def lines_of(script: Script) -> Iterator[Line]:
    """Every command of a script that runs a Python program, those in texts for another shell included."""
    for command in script.commands:
        if command.texts[0] in PRINTED:
            continue
        for one in _unfolded(command, 0):
            found = _line(one)
            if found is not None:
                yield found


def best_line(script: Script, names: Collection[str]) -> tuple[Line | None, int]:
    """The command with most of these arguments, and how many of them it has."""
    best: Line | None = None
    most = 0
    for line in lines_of(script):
        count = len({word.text.partition("=")[0].split(" ")[0] for word in line.words} & set(names))
        if count > most:
            best, most = line, count
    return best, most


def arguments(words: Sequence[Word]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by argument (`--name` with what follows it, as argparse reads it: the last counts) and their places."""
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    name = ""
    for word in _single(words):
        if word.text.startswith("--") and len(word.text) > len("--"):
            name, equals, value = word.text.partition("=")
            values[name] = value if equals else True
            places[name] = f"{word.where} {name}"
        elif name and not _OTHERS.fullmatch(word.text):
            held = values[name]
            values[name] = (
                word.text if held is True else [*held, word.text] if isinstance(held, list) else [held, word.text]
            )
    return values, places


def _single(words: Sequence[Word]) -> Iterator[Word]:
    """The words up to a redirection, an argument that stands with its value in one word taken apart."""
    for word in words:
        if _REDIRECTED.fullmatch(word.text):
            return
        if word.text.startswith("--") and " " in word.text and "=" not in word.text.split(" ")[0]:
            for part in word.text.split():
                yield replace(word, text=part.strip("'\""))
        else:
            yield word


def _unfolded(command: Command, depth: int) -> Iterator[Command]:
    """The command, or those in a word of it that holds a whole command."""
    inner = [word for word in command.words if ".py" in word.text and re.search(r"\s", word.text.strip())]
    if not inner or depth >= SHELLS.value:
        yield command
        return
    outer = tuple(word for word in command.words if word not in inner and word.text not in ("sh", "bash", "-c", "eval"))
    for word in inner:
        text = _BROKEN.sub(" ", word.text)
        for one in parse_script(text, "", {name: held.text for name, held in command.env.items()}).commands:
            placed = tuple(replace(part, where=word.where) for part in one.words)
            yield from _unfolded(Command((*outer, *placed), command.env), depth + 1)


def _counts(command: Command) -> bool:
    """Whether it starts as many processes as its own words say: these stay with what stands behind them."""
    return os.path.basename(command.texts[0]) in WRAPPERS


def _line(command: Command) -> Line | None:
    """A command taken apart at its program: the first word that is a Python file, or what follows `-m`."""
    words = worked_out(command.words if _counts(command) else behind(command.words), command.env)
    for at, word in enumerate(words):
        module = at and words[at - 1].text in ("-m", "--module") and not word.text.startswith("torch.distributed")
        if word.text.endswith(".py") or module:
            return Line(words[:at], word, words[at + 1 :], command)
    return None
