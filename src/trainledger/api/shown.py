"""What the library's answers share: they print, serialise and show themselves as the command line does."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from trainledger.api.estimate import Given, changed
from trainledger.api.estimate import draft_from as _read
from trainledger.importers.draft import Draft
from trainledger.show.html import html
from trainledger.show.table import BLOCK, PLAIN, Section, plain


class Shown(ABC):
    """An answer as sections. `to_dict` is what the verb prints with `--json`."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values, sizes in bytes."""

    @abstractmethod
    def _sections(self, block: str) -> Sequence[Section]:
        """The answer as the command line prints it; `block`: the character of which bars are made."""

    def __str__(self) -> str:
        parts = [plain(section) for section in self._sections(PLAIN) if section.text or section.rows]
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        return html(self._sections(BLOCK))


def draft_from(plan: Given, sets: Mapping[str, Any]) -> Draft:
    """The draft of a plan's keys, of a file, or of a run's files together. Raises InputError with every problem."""
    return _read(plan, changed(sets))


def name_of(plan: Given, number: int) -> str:
    """What a plan is called: its files, or its place among those compared."""
    if isinstance(plan, str | os.PathLike):
        return os.fspath(plan)
    return f"plan {number}" if isinstance(plan, Mapping) else " + ".join(os.fspath(one) for one in plan)
