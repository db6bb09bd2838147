"""Environment variables that a script sets, into `stack.allocator` and `stack.env`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from trainledger.allocator.conf import settings_of
from trainledger.base.problems import InputError, nearest
from trainledger.facts.allocator_settings import ALLOCATOR_TEXTS
from trainledger.facts.import_launch import PREFIXES, VARIABLES
from trainledger.facts.import_rows import Means
from trainledger.facts.option_row import Effect
from trainledger.facts.options import find_option, option_names
from trainledger.importers.draft import Uncounted, Unknown
from trainledger.importers.piece import Piece
from trainledger.importers.shell_words import Word
from trainledger.importers.yaml_text import scalar

_ENV = "stack.env"
_OFF = ("", "0", "false", "False")


def environment_keys(piece: Piece, env: Mapping[str, Word]) -> None:
    """Variables whose effect is known become keys of the plan; those of the libraries below that no table has are
    listed as unknown; a script's own variables are its business."""
    for name, word in env.items():
        where = f"{word.where} {name}"
        if name in ALLOCATOR_TEXTS:
            _allocator(piece, name, word, where)
            continue
        row = find_option(_ENV, name)
        if row is not None:
            if row.effect is not Effect.NONE:
                piece.give(f"{_ENV}.{name}", word.text, where)
            continue
        known = next((one for one in VARIABLES if fnmatchcase(name, one.name)), None)
        if known is not None:
            if known.means is Means.UNCOUNTED and word.text not in _OFF:
                piece.uncounted.append(Uncounted(name, where, known.direction.value))
        elif name.startswith(PREFIXES):
            piece.unknown.append(Unknown(name, where, nearest(name, option_names(_ENV))))


def _allocator(piece: Piece, name: str, word: Word, where: str) -> None:
    if not word.known:
        piece.refuse(name, f"found {word.text!r}", "its text is needed", "Give it with --env.", where)
        return
    try:
        found = settings_of(word.text, name)
    except InputError as error:
        piece.problems += [replace(one, where=where) for one in error.problems]
        return
    for setting, text in found.items():
        value: object = text == "True" if text in ("True", "False") else scalar(text)
        piece.give(f"stack.allocator.{setting}", value, where)
