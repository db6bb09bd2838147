"""What the library's answers share: they print, serialise and show themselves as the command line does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

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
