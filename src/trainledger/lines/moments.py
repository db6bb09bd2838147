"""Names of moments: a part of the run, and what runs in it, as in `step 2: backward of the loss`."""

from __future__ import annotations

BETWEEN = ": "


def in_part(part: str, what: str) -> str:
    """The name of what runs in a part of the run."""
    return f"{part}{BETWEEN}{what}"


def part_of(name: str) -> str:
    """The part of the run that a moment is in; a moment that has no more than one is its own."""
    return name.partition(BETWEEN)[0]


def what_of(name: str) -> str:
    """What runs at a moment, without the part of the run; empty where the part is the moment."""
    return name.partition(BETWEEN)[2]
