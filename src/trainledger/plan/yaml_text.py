"""Mappings as lines of YAML, with a comment behind a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

INDENT = "  "
Word = Callable[[Any], str]


def yaml_lines(
    data: Mapping[str, Any], word: Word, origins: Mapping[str, str], path: tuple[str, ...] = ()
) -> Iterator[str]:
    """A line for every key. `word`: a value on one line; `origins`: comments by dotted path; `path`: where the mapping
    stands."""
    pad = "".join(INDENT for _ in path)
    for key, value in data.items():
        here = (*path, key)
        origin = origins.get(".".join(here), "")
        comment = f"  # {origin}" if origin else ""
        if isinstance(value, dict) and value:
            yield f"{pad}{word(key)}:{comment}"
            yield from yaml_lines(value, word, origins, here)
        else:
            yield f"{pad}{word(key)}: {word(value)}{comment}"
