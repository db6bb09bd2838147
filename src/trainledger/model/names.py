"""Patterns of module names, as a plan says what is trained: which names of weights they mean."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

WILD = "*?["


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is whole parts of this dotted name.

    `*`, `?` and `[0-9]` stand for what they stand for in names of files: `lm_head`, `layers.3`, `self_attn.*_proj`,
    `model.layers.2[4-7]`. A `*` that is a pattern's first or last part says nothing: `layers.3.*` is `layers.3`.
    """
    whole = f".{name}."
    return any(
        fnmatchcase(whole, f"*.{one}.*") if is_wild(one) else f".{one}." in whole for one in map(trimmed, patterns)
    )


def trimmed(pattern: str) -> str:
    """A pattern without a `*` that stands for whatever is before or behind."""
    return pattern.removeprefix("*.").removesuffix(".*")


def is_wild(pattern: str) -> bool:
    """Whether a pattern has places that stand for more than themselves."""
    return any(mark in pattern for mark in WILD)


class Patterns:
    """Patterns that are asked of the weights of many layers: what a layer's own path leaves of them is found once."""

    __slots__ = ("_plain", "_rests", "_wild")

    def __init__(self, patterns: Sequence[str]) -> None:
        every = dict.fromkeys(map(trimmed, patterns))
        self._wild = tuple(one for one in every if is_wild(one))
        self._plain = tuple(one for one in every if not is_wild(one))
        self._rests: dict[str, list[str]] = {}  # by the parts that a path may end with, those that must follow
        for one in self._plain:
            parts = one.split(".")
            for at in range(1, len(parts) + 1):
                self._rests.setdefault(".".join(parts[:at]), []).append(".".join(parts[at:]))

    def inner(self, names: Sequence[str]) -> tuple[bool, ...]:
        """Which of these names fit by themselves, whatever stands before them."""
        return tuple(fits(name, self._plain) for name in names)

    def below(self, path: str, names: Sequence[str], inner: Sequence[bool]) -> tuple[bool, ...]:
        """Which of these names fit below this path; `inner`: which do so by themselves."""
        parts = path.split(".")
        rests = [one for at in range(len(parts)) for one in self._rests.get(".".join(parts[at:]), ())]
        if "" in rests or fits(path, self._plain):
            return (True,) * len(names)
        if not rests and not self._wild:
            return tuple(inner)
        starts = tuple(f"{one}." for one in rests)
        return tuple(
            known or f"{name}.".startswith(starts) or fits(f"{path}.{name}", self._wild)
            for name, known in zip(names, inner, strict=True)
        )
