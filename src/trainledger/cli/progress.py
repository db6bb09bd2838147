"""Progress of long work on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable


def progress(what: str) -> Callable[[int, int], None] | None:
    """A report of steps done and steps expected; None where nobody watches. The last one clears its line."""
    if not sys.stderr.isatty():
        return None

    def report(done: int, expected: int) -> None:
        text = "" if done >= expected else f"{what}: {done} of about {expected} estimates"
        print(f"\r{text:60}", end="\r" if not text else "", file=sys.stderr, flush=True)

    return report
