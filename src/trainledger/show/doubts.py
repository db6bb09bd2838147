"""What of the run's own files was not taken, said beside the verdict: it may be a verdict on another run."""

from __future__ import annotations

from collections.abc import Sequence

from trainledger.facts.limits import NAMED_KEYS
from trainledger.show.document import Origin, UncountedKey, UnknownKey


def title(origin: Origin) -> str:
    """What follows the outcome where a key is not known; empty where all are."""
    return "" if not origin.unknown else "; keys that are not known were ignored, so this may not be your run"


def lines(origin: Origin) -> tuple[str, ...]:
    """A line for each key that is not known, and one for all that are not counted."""
    named = [f"  {unknown(one)}" for one in origin.unknown[: NAMED_KEYS.value]]
    if more := len(origin.unknown[NAMED_KEYS.value :]):
        named.append(f"  and {more} more, listed below")
    return (*named, *_uncounted(origin.uncounted))


def unknown(one: UnknownKey) -> str:
    """`axolotl.yaml:3 adaptor is not known; did you mean adapter? It was ignored.`"""
    place = one.where if one.where.endswith(one.path) else f"{one.where} {one.path}".strip()
    near = f"did you mean {one.near}? It was ignored." if one.near else "it was ignored."
    return f"{place} is not known; {near}"


def _uncounted(found: Sequence[UncountedKey]) -> tuple[str, ...]:
    if not found:
        return ()
    ways = dict.fromkeys(one.direction for one in found)
    parts = [f"{', '.join(one.path for one in found if one.direction == way)} ({way})" for way in ways]
    return (f"  not counted: {'; '.join(parts)}",)
