"""Command lines of front ends: the arguments that a command names, and how many processes its launcher starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_launch import COUNTING, NODES, PER_NODE, PROCESSES
from trainledger.importers.document import Document
from trainledger.importers.environment import environment_keys
from trainledger.importers.front_end import found
from trainledger.importers.inputs import Input, read_input
from trainledger.importers.launch_counts import counted, visible
from trainledger.importers.piece import Given, Piece
from trainledger.importers.reckoning import reckoned
from trainledger.importers.script import Command
from trainledger.importers.shell_words import Word
from trainledger.importers.yaml_text import scalar

_SUM = re.compile(r"\$\(\(\s*(.+?)\s*\)\)|\$\(\s*expr\s+(.+?)\s*\)")
_FLAG = re.compile(r"--|-[A-Za-z]")
VARIABLES = ("NPROC_PER_NODE",)
NODE_VARIABLES = ("NNODES", "NODES")


class Line:
    """One command: `values` of its `--name value` words, by name with underscores; `rest`: words that are none."""

    def __init__(self, command: Command, words: Sequence[Word]) -> None:
        self.env = command.env
        self.values: dict[str, Given] = {}
        self.unknown: dict[str, Word] = {}
        self.rest: list[Word] = []
        at = 0
        while at < len(words):
            word, at = words[at], at + 1
            if not word.text.startswith("--"):
                self.rest.append(word)
                continue
            name, equals, value = word.text[len("--") :].partition("=")
            parts = [Word(value, word.where, word.known)] if equals else []
            while not equals and at < len(words) and not _FLAG.match(words[at].text):
                parts.append(words[at])
                at += 1
            self.read(name.replace("-", "_"), parts, word)

    def read(self, name: str, parts: Sequence[Word], word: Word) -> None:
        """Note the value, or the values, that follow a name."""
        read = [calculated(part, self.env) for part in parts]
        if any(not part.known for part in read):
            self.unknown[name] = next(part for part in read if not part.known)
        texts = [part.text for part in read]
        value = True if not texts else scalar(texts[0]) if len(texts) == 1 else texts
        value = None if value == "None" else "" if texts == [""] else value
        self.values[name] = Given(value, f"{word.where} --{name}")

    def document(self, name: str) -> Document:
        """The values as a mapping with places."""
        data = {key: given.value for key, given in self.values.items()}
        return Document(data, {(): name, **{(key,): given.where.split(" ")[0] for key, given in self.values.items()}})

    def take(self, name: str, value: str, word: Word) -> None:
        """Note a value that is said as `name=value`."""
        self.read(name, [Word(value, word.where, word.known)], word)

    def settle(self, piece: Piece, read: Sequence[str]) -> None:
        """Note keys that are read and whose value only a shell could know."""
        for name, word in self.unknown.items():
            if name in read:
                fix = "Write the value in its place, or give the variable with --env."
                piece.refuse(name, f"found {word.text}", "a value that nothing here sets is not known", fix, word.where)
                self.values.pop(name, None)


def calculated(word: Word, env: Mapping[str, Word]) -> Word:
    """A word that is `$((a / b / c))` or `$(expr a / b)` worked out; any other word, and one of names that are not
    known, as it is."""
    match = _SUM.fullmatch(word.text)
    text = (match.group(1) or match.group(2)).replace("\\", "") if match else ""
    total = reckoned(text, lambda name: env[name].text if name in env and env[name].known else None)
    return word if total is None else Word(str(total), word.where)


def world_of(command: Command, launcher: Sequence[Word], devices: bool = True) -> Given | None:
    """The number of processes that a command starts: its launcher's own words, variables, or the devices it may see.

    `devices`: whether one process runs on each of them. None where nothing says it, or where it is no number.
    """
    line = Line(command, launcher)
    total = _said(line, command, PROCESSES)
    if total is not None:
        return total
    each, nodes = _said(line, command, (*PER_NODE, *VARIABLES)), _said(line, command, (*NODES, *NODE_VARIABLES))
    if each is None:
        seen = visible(command.env) if devices else None
        if seen is None:
            return None
        name = next(name for name in COUNTING if name in command.env and command.env[name].known)
        each = Given(seen, f"{command.env[name].where} {name}")
    count = int(nodes.value) if nodes is not None else 1
    return Given(int(each.value) * count, each.where)


def ranks(piece: Piece, command: Command, launcher: Sequence[Word], devices: bool = True) -> Given | None:
    """The number of processes as `world_of` has it; where only the machine knows it, the piece notes what is open."""
    line = Line(command, launcher)
    filed = "config_file" in line.values  # accelerate's file says it, devices that are shown do not count
    world = world_of(command, launcher, devices and not filed)
    if world is not None or filed:
        return world
    names = (*PROCESSES, *PER_NODE, *VARIABLES, *NODES, *NODE_VARIABLES)
    held = next((line.unknown[name] for name in names if name in line.unknown), None)
    held = held or next((command.env[name] for name in names if name in command.env), None)
    if held is not None and not held.text.isdecimal():
        piece.facts["launch.open"] = Given(held.text, held.where)
    elif devices:
        piece.facts["launch.open"] = Given("", command.words[0].where)
    return None


def _said(line: Line, command: Command, names: Sequence[str]) -> Given | None:
    """The count under the first of these names that is there, an option before a variable; None where it is none."""
    for name in names:
        if given := line.values.get(name):
            first = given.value[0] if isinstance(given.value, list) else given.value
            count, where = counted(str(first)), given.where
        elif name in command.env:
            count, where = counted(command.env[name].text), f"{command.env[name].where} {name}"
        else:
            continue
        return Given(count, where) if count is not None else None
    return None


def launch(piece: Piece, command: Command, launcher: Sequence[Word]) -> None:
    """Name the file of accelerate's settings that a launcher reads, and keep variables that move memory."""
    line = Line(command, launcher)
    config = line.values.get("config_file")
    if config is not None and isinstance(config.value, str):
        piece.files.append((config.value, config.where))
    environment_keys(piece, command.env)


def named_file(word: Word, folder: str) -> Input:
    """A file that a command names. Raises InputError with the place where it is named."""
    try:
        file = read_input(found(word.text, folder) or word.text)
    except InputError as error:
        raise InputError([replace(one, where=one.where or word.where) for one in error.problems]) from None
    if not isinstance(file.document, Document) or not isinstance(file.document.data, dict):
        problem = Problem("", f"{word.text}: no mapping", "a YAML or JSON mapping of keys is needed", where=word.where)
        raise InputError([problem])
    return file


def split(command: Command, marks: Sequence[str]) -> tuple[tuple[Word, ...], tuple[Word, ...]] | None:
    """The words before and after the first that is one of `marks` (by its last part of a path); None where none is."""
    for at, word in enumerate(command.words):
        if word.text in marks or os.path.basename(word.text) in marks:
            return command.words[:at], command.words[at + 1 :]
    return None
