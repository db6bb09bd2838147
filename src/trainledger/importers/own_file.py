"""A framework's own configuration, alone or under a command that names it and changes keys of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from trainledger.facts.import_rows import KeyRow
from trainledger.importers.document import Document
from trainledger.importers.environment import environment_keys
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.overlay import Change, left_to_a_shell, once, overlay
from trainledger.importers.piece import Given, Piece, Rank
from trainledger.importers.script import Script
from trainledger.importers.shell_words import Word


class Run(Protocol):
    """A command: the keys that its flags change, and the variables that it is started with."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """What its flags say, in order."""

    @property
    def env(self) -> Mapping[str, Word]:
        """Its variables by name."""


Ran = TypeVar("Ran", bound=Run)


@dataclass(frozen=True, slots=True)
class Own(Generic[Ran]):
    """How one framework's files are read: its name, the fact under which a configuration waits for a command after it,
    the rows of keys by name, the command of a script, the configuration that a command means, and what both say."""

    name: str
    fact: str
    rows: dict[str, KeyRow]
    command: Callable[[Script], Ran]
    config: Callable[[Ran, Input, Context], Document]
    read: Callable[[Document, Piece, Context, Ran | None], Piece]


def extracted(given: Input, context: Context, own: Own[Ran]) -> Piece:
    """The piece of a configuration, or of a command with its configuration. Raises InputError where a script has none
    or several commands, or a command's configuration is not there."""
    piece = Piece(own.name, given.name)
    piece.give("stack.framework", own.name, piece.name)
    for package, release in context.versions.items():
        piece.give(f"stack.versions.{package}", release, "--framework-version")
    if given.script is None:
        document = given.document or Document({}, {})
        piece.facts[own.fact] = Given(document, given.name)
        return once(own.read(document, piece, context, None), context)
    run = own.command(given.script)
    piece.rank = Rank.COMMAND
    document = own.config(run, given, context)
    left_to_a_shell(piece, run.changes, own.rows)
    environment_keys(piece, run.env)
    return once(own.read(overlay(document, run.changes), piece, context, run), context)
