"""torchtune: a recipe's YAML, or a `tune run` line with its recipe, its configuration and `key=value` changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainledger.base.problems import nearest
from trainledger.facts.import_torchtune import (
    ALONE_FILLED,
    FILLED,
    KEYS,
    MANY,
    NEWEST,
    RECIPES,
    SPREAD,
    SPREAD_FILLED,
)
from trainledger.facts.torchtune import NAME
from trainledger.importers import torchtune_parts as parts
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.launch import NO_LAUNCH, Launch, launch_of, launched, only_run, ranks
from trainledger.importers.overlay import (
    Change,
    Wanted,
    config_of,
    fill,
    referred,
    rows_of,
    shown,
    value_of,
)
from trainledger.importers.own_file import Own, extracted
from trainledger.importers.piece import Piece
from trainledger.importers.script import Command, Script
from trainledger.importers.shell_words import Word

FACT = "torchtune.config"
WANTED = Wanted(FACT, "A preset is written out by tune cp PRESET my.yaml.")
COMPONENT = "_component_"
TUNE = "tune"
_ROWS = {row.name: row for row in KEYS}


def identify(given: Input) -> float:
    """1 for a `tune run` line, or a mapping whose model is a component; less for any component of torchtune."""
    if given.script is not None:
        return float(any(True for _ in _runs(given.script)))
    model = given.data.get("model", given.data.get("policy_model"))
    if isinstance(model, dict) and isinstance(model.get(COMPONENT), str):
        return 1.0
    named = [part.get(COMPONENT) for part in given.data.values() if isinstance(part, dict)]
    return 0.9 if any(isinstance(one, str) and one.startswith("torchtune.") for one in named) else 0.0


def extract(given: Input, context: Context) -> Piece:
    """The piece of a configuration, or of a command with its configuration. Raises InputError when neither is there."""
    return extracted(given, context, Own(NAME, FACT, _ROWS, _command, _config, _read))


@dataclass(frozen=True, slots=True)
class _Run:
    """What a `tune run` line says: its recipe, how it is launched, the configuration that it names, what it changes."""

    recipe: Word | None = None
    launch: Launch = NO_LAUNCH
    config: Word | None = None
    changes: tuple[Change, ...] = ()
    env: Mapping[str, Word] = field(default_factory=dict)


def _runs(script: Script) -> Iterator[tuple[Command, int]]:
    """Every command that starts a recipe, and where in it `tune run`'s options, or the recipe's file, stand."""
    for command in script.commands:
        texts = command.texts
        for at, text in enumerate(texts):
            name = os.path.basename(text)
            if name == TUNE and texts[at + 1 : at + 1 + 1] == ("run",):
                yield command, at + 1 + 1
                break
            if name.endswith(".py") and name.removesuffix(".py") in RECIPES:
                yield command, at
                break


def _command(script: Script) -> _Run:
    found = list(_runs(script))
    only_run([command.words[0].where for command, _ in found])
    command, at = found[0]
    launch, rest = launched(command.words[at:])
    config, changes = _options(list(rest[1:]))
    return _Run(
        rest[0] if rest else None, launch.over(launch_of(command.words[:at])), config, tuple(changes), command.env
    )


def _options(options: list[Word]) -> tuple[Word | None, list[Change]]:
    """The configuration that is named, and `key=value` and `~key` changes."""
    config, changes = None, []
    while options:
        word = options.pop(0)
        name, equals, value = word.text.partition("=")
        if name in ("--config", "-c"):
            config = Word(value, word.where) if equals else options.pop(0) if options else None
        elif word.text.startswith("~"):
            changes.append(Change(word.text[1:], None, word.where))
        elif equals and not word.text.startswith("--"):
            changes.append(Change(name, value_of(value), word.where, word.known))
    return config, changes


def _config(run: _Run, given: Input, context: Context) -> Document:
    return config_of(run.config, given, context, WANTED)


def _read(document: Document, piece: Piece, context: Context, ran: _Run | None) -> Piece:
    run = ran or _Run()
    keys = Keyed(referred(document), rows_of(document, KEYS), piece)
    spread = _spread(keys, run, piece)
    version = context.versions.get(NAME, "")
    for part in (parts.model, parts.optimizer, parts.batch, parts.loss, parts.memory, parts.saves):
        part(keys, piece)
    parts.precision(keys, piece, spread)
    if spread:
        parts.parallel(keys, piece, ranks(run.launch, piece))
        fill(piece, SPREAD_FILLED, version)
    else:
        fill(piece, ALONE_FILLED, version)
    if not version:
        piece.fill(NEWEST.path, NEWEST.value, NEWEST.why, NEWEST.source)
    fill(piece, FILLED, version)
    keys.finish()
    return piece


def _spread(keys: Keyed, run: _Run, piece: Piece) -> bool:
    """Whether the recipe is a distributed one: by its name, or by keys that such recipes alone read."""
    if run.recipe is None:
        return any(keys.raw(name) not in (None, False) for name in SPREAD)
    name = run.recipe.text.removesuffix(".py")
    row = RECIPES.get(name) or RECIPES.get(os.path.basename(name))
    if row is None:
        near = nearest(name, RECIPES)
        fix = f"Did you mean {near}?" if near else ""
        piece.refuse("recipe", shown(run.recipe.text), "a recipe of torchtune that trains", fix, run.recipe.where)
        return False
    return row.value == MANY
