"""Reading an outside mapping against its table of keys: what is unknown is found, with the nearest that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from trainledger.base.problems import MISSPELT, nearest
from trainledger.facts.import_rows import KeyRow, Means
from trainledger.importers.document import Document, Path
from trainledger.importers.draft import Uncounted, Unknown
from trainledger.importers.piece import Piece


class Keyed:
    """A mapping with its rows. `raw` reads a key; `finish` lists every key that no row knows or that is not counted."""

    def __init__(self, document: Document, rows: Sequence[KeyRow], piece: Piece, under: Path = ()) -> None:
        self.document, self.rows, self.piece, self.under = document, rows, piece, under
        self.exact = {row.name: row for row in rows if "*" not in row.name}
        self.loose = [row for row in rows if "*" in row.name]

    def data(self) -> Any:
        """The mapping."""
        found: Any = self.document.data
        for part in self.under:
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def raw(self, *names: str, default: Any = None) -> Any:
        """The value of the first of these keys (dotted) that is given; `default` where none is."""
        for name in names:
            part: Any = self.data()
            for key in name.split("."):
                part = part.get(key, _NONE) if isinstance(part, dict) else _NONE
            if part is not _NONE:
                return part
        return default

    def has(self, name: str) -> bool:
        """Whether the key is given, null included."""
        return self.raw(name, default=_NONE) is not _NONE

    def where(self, name: str) -> str:
        """`file:line key` of a key."""
        place = self.document.where((*self.under, *name.split(".")))
        return f"{place} {name}".strip()

    def row(self, name: str) -> KeyRow | None:
        """The row that knows this dotted key."""
        return self.exact.get(name) or next((row for row in self.loose if fnmatchcase(name, row.name)), None)

    def finish(self) -> None:
        """Take what goes straight into the plan, and list what is unknown and what is not counted."""
        for name, value in self._leaves(self.data(), ""):
            row = self.row(name)
            if row is not None and (near := self._misspelt(name, row)):
                self.piece.unknown.append(Unknown(name, self.where(name), near))
            elif row is None:
                near = nearest(name, self.exact) or nearest(name.rpartition(".")[2], self.exact)
                self.piece.unknown.append(Unknown(name, self.where(name), near))
            elif row.means is Means.UNCOUNTED and value not in (None, False, ""):
                self.piece.uncounted.append(Uncounted(name, self.where(name), row.direction.value))
            elif row.path and value is not None and row.path not in self.piece.given:
                self.piece.give(row.path, value, self.where(name))

    def _misspelt(self, name: str, row: KeyRow) -> str:
        """The key that counts, beside this one, of which it is a misspelling; it has no row but one of a whole section
        that moves no memory."""
        if row.means is not Means.NOTHING or name in self.exact:
            return ""
        section, dot, last = name.rpartition(".")
        beside = {
            known.rpartition(".")[-1]: known
            for known, one in self.exact.items()
            if one.means is not Means.NOTHING and known.rpartition(".")[:-1] == (section, dot)
        }
        return beside.get(nearest(last, beside, MISSPELT), "")

    def _leaves(self, data: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        """Every key that a row knows, or else whose value is no mapping."""
        for key, value in data.items() if isinstance(data, dict) else ():
            name = f"{prefix}{key}"
            if isinstance(value, dict) and self.row(name) is None and (value or self._above(name)):
                yield from self._leaves(value, f"{name}.")
            else:
                yield name, value

    def _above(self, name: str) -> bool:
        """Whether a row knows a key below this one."""
        return any(row.name.startswith(f"{name}.") for row in self.rows)


_NONE = object()


class FlatKeyed(Keyed):
    """A mapping whose keys have dots in them."""

    def where(self, name: str) -> str:
        """`file:line key` of a key."""
        return f"{self.document.places.get((name,), '')} {name}".strip()
