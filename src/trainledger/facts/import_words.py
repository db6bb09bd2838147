"""Words of an outside format that stand for words of the plan: a model's builder, an optimizer, a loss, a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class WordRow:
    """An outside word and what it stands for; `keys`: what else of the plan, or of a model, it says."""

    name: str
    value: str
    source: Source
    keys: Mapping[str, Any] = field(default_factory=dict)


def words(source: Source, pairs: Iterable[tuple[str, str]]) -> dict[str, WordRow]:
    """Rows by their outside word."""
    return {name: WordRow(name, value, source) for name, value in pairs}
