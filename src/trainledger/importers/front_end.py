"""What front ends of the Trainer share: their own keys are read, and what they hand the Trainer is gathered with the
place of the key that gave it, or the row of the default that did."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainledger.base.problems import nearest
from trainledger.base.sources import Source
from trainledger.facts.import_bundled import Bundled
from trainledger.facts.import_hf import TRAINER_KEYS
from trainledger.facts.import_rows import FilledRow, KeyRow, Means
from trainledger.facts.option_row import Direction
from trainledger.facts.versions import at_least
from trainledger.importers.arguments import Arguments
from trainledger.importers.document import Document
from trainledger.importers.draft import Uncounted, Unknown
from trainledger.importers.formats import Context
from trainledger.importers.hf_run import run_piece
from trainledger.importers.keyed import Keyed
from trainledger.importers.piece import Filled, Given, Piece

DEFAULT = "default: "
TRAINERS = {row.name: row for row in TRAINER_KEYS}


class FrontEnd:
    """A front end's file: `own` reads its keys, `args` is what it hands the Trainer."""

    def __init__(self, document: Document, rows: Sequence[KeyRow], piece: Piece, version: str | None) -> None:
        self.keyed, self.piece, self.version = Keyed(document, rows, piece), piece, version
        data = self.keyed.data()
        self.own = Arguments(
            {str(name): Given(value, self.keyed.where(str(name))) for name, value in data.items()}, piece
        )
        self.args: dict[str, Given] = {}
        self.sources: dict[str, Source] = {}

    def hand(self, argument: str, value: object, *names: str) -> None:
        """Hand the Trainer a value that these keys of the file give; null is not handed on."""
        if value is not None:
            self.args[argument] = Given(value, self.own.where(*names))

    def same(self, *pairs: tuple[str, str]) -> None:
        """Hand the Trainer keys of the file as they are: its argument, the file's key."""
        for argument, name in pairs:
            self.hand(argument, self.own.raw(name), name)

    def fill(self, rows: Iterable[FilledRow], *only: str) -> None:
        """Hand the Trainer these rows' defaults (`only`: of these arguments) where it has no value yet."""
        for row in rows:
            old = (row.since and not at_least(self.version, row.since)) or (
                row.until and at_least(self.version, row.until)
            )
            if (only and row.path not in only) or row.path in self.args or old:
                continue
            self.args[row.path] = Given(row.value, f"{DEFAULT}{row.why}")
            self.sources[row.why] = row.source

    def release(self, newest: FilledRow) -> None:
        """Say which release's defaults hold where none is given: the newest that is known."""
        if self.version is None:
            self.piece.fill(newest.path, newest.value, newest.why, newest.source)

    def trainer(self) -> None:
        """Hand on every key that is the Trainer's own and not the front end's; list what neither knows."""
        known = (*self.keyed.exact, *TRAINERS)
        for name, given in self.own.given.items():
            row = self.keyed.row(name)
            if row is None and isinstance(given.value, dict) and self._inside(name):
                continue  # its parts are looked at one by one
            if row is None and name in TRAINERS:
                self.args.setdefault(name, given)
            elif row is None:
                self.piece.unknown.append(Unknown(name, given.where, nearest(name, known)))

    def _inside(self, name: str) -> bool:
        """Whether a row knows a key inside this one."""
        return any(row.name.startswith(f"{name}.") for row in self.keyed.rows)

    def uncounted(self, name: str, where: str, way: Direction) -> None:
        """Note that something moves memory and is not counted."""
        self.piece.uncounted.append(Uncounted(name, where, way.value))

    def needs(self, name: str, why: str, fix: str = "") -> None:
        """Note a key that must be given."""
        self.piece.refuse(name, "missing", why, fix, self.keyed.document.where(()))

    def refuse(self, name: str, allowed: str, fix: str = "") -> None:
        """Note that the value of a key is none that can be read."""
        self.piece.refuse(name, f"found {self.own.raw(name)!r}", allowed, fix, self.own.where(name))

    def word(self, name: str, words: Iterable[str]) -> str | None:
        """The text of a key that takes one of these words; another is a problem."""
        text, known = self.own.text(name), tuple(words)
        if text is None or text in known:
            return text
        near = nearest(text, known)
        self.refuse(name, f"one of {', '.join(known)} can be read", f"Did you mean {near}?" if near else "")
        return None

    def settings(self, argument: str, bundled: Iterable[Bundled], folder: str) -> None:
        """Hand on DeepSpeed's settings: in place, in a file that exists, or those that the front end carries."""
        raw = self.own.raw(argument)
        if not isinstance(raw, str) or raw.strip().startswith("{"):
            self.hand(argument, raw if raw else None, argument)
            return
        if path := found(raw.strip(), folder):
            self.hand(argument, path, argument)
            return
        name = os.path.splitext(os.path.basename(raw.strip()))[0]
        row = next((one for one in bundled if name in one.names), None)
        self.hand(argument, raw if row is None else dict(row.data), argument)

    def run(self, context: Context) -> None:
        """Read what is handed on as a run of the Trainer; what comes of a default is one of the piece's defaults."""
        before = set(self.piece.given)
        run_piece(self.piece, self.args, context)
        for path, given in list(self.piece.given.items()):
            if path not in before and given.where.startswith(DEFAULT):
                self.default(path, self.piece.given.pop(path))
        for name, given in self.piece.facts.items():
            if given.where.startswith(DEFAULT) and given.source is None:
                self.piece.facts[name] = replace(given, source=self.sources.get(given.where.removeprefix(DEFAULT)))

    def default(self, path: str, given: Given) -> None:
        """One of the piece's defaults, by the row that gave it."""
        why = given.where.removeprefix(DEFAULT).partition(".")[0]
        why = given.where.removeprefix(DEFAULT) if why not in self.sources else why
        source = next((self.sources[one] for one in (why, *self.sources) if why.startswith(one)), None)
        if source is not None:
            self.piece.filled[path] = Filled(given.value, why, source)

    def finish(self) -> None:
        """List the front end's own keys that are not counted, and parts of mappings that nothing knows."""
        for name, value in self.keyed._leaves(self.keyed.data(), ""):
            row = self.keyed.row(name)
            if row is not None and row.means is Means.UNCOUNTED and value not in (None, False, "", [], 0):
                self.uncounted(name, self.keyed.where(name), row.direction)
            elif row is None and "." in name and self._inside(name.partition(".")[0]):
                near = nearest(name, self.keyed.exact)
                self.piece.unknown.append(Unknown(name, self.keyed.where(name), near))


def found(path: str, folder: str) -> str:
    """A file's path, looked for beside the file that names it, then in the working folder; empty if it is nowhere."""
    for base in (folder, ""):
        try:
            full = os.path.join(base, os.path.expanduser(path))
            if os.path.isfile(full):
                return os.path.abspath(full)
        except (OSError, ValueError):
            return ""
    return ""


def overlaid(below: Document, above: Mapping[str, Given]) -> Document:
    """A file with keys of a command line laid over it."""
    data: dict[str, Any] = dict(below.data) if isinstance(below.data, dict) else {}
    places = dict(below.places)
    for name, given in above.items():
        data[name] = given.value
        places[(name,)] = given.where.removesuffix(f" --{name}")
    return Document(data, places)
