"""Keys of a model that its type does not look for, and which of those that it has may be meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from trainledger.base.problems import MISSPELT, TYPED, InputError, Problem, nearest
from trainledger.facts.model_key_words import MEANT, NOTHING
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.importers.document import Path
from trainledger.importers.draft import Unknown
from trainledger.model.build import asked

SET = "--set"


def unread(keys: Mapping[str, Any], typed: Collection[str]) -> Iterator[tuple[str, str]]:
    """Keys that the model's type does not look for, each with the one that it may be meant for (empty: none is near).

    `typed`: those that were written by hand. Of a configuration's own, which may hold any others, only a key that
    differs by a letter or two from one that is looked for, or says a size in another code's word where it is missing.
    """
    known = _known(keys)
    if not known:
        return
    for key in (key for key in keys if key not in known and key not in NOTHING.names and not key.startswith("_")):
        same = {word for row in MEANT if key in row.words for word in row.words if word in known}
        if key in typed:
            yield key, next(iter(sorted(same)), "") or nearest(key, known, TYPED)
        elif near := (not same & keys.keys() and next(iter(sorted(same)), "")) or nearest(key, known, MISSPELT):
            yield key, near


def laid_over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A known model's keys with a plan's own over them; a size under another word that the type looks for, too, takes
    the place of the one that it had."""
    both = {**base, **own}
    known = _known(both)
    said = {word for key in own if key in known for row in MEANT if key in row.words for word in row.words}
    return {key: value for key, value in both.items() if key in own or key not in said or key not in known}


def _twice(keys: Mapping[str, Any], where: Callable[[Path], str]) -> Iterator[Problem]:
    """Sizes that a plan says under two words that its type looks for, and that differ."""
    known = _known(keys)
    for row in MEANT:
        words = [word for word in row.words if word in known and keys.get(word) is not None]
        for word in words[1:]:
            if keys[word] != keys[words[0]]:
                found = f"found {keys[word]!r} beside {words[0]}: {keys[words[0]]!r}"
                place = where(("model", word))
                yield Problem(f"model.{word}", found, "both say one size", "Leave one of them out.", place)


def _known(keys: Mapping[str, Any]) -> frozenset[str]:
    row = MODEL_TYPES.get(str(keys.get("model_type")))
    if row is None:
        return frozenset()
    with suppress(InputError):  # keys that are missing are said when the model is built
        return asked(keys) | {name for name, _ in row.defaults}
    return frozenset()


def in_plan(
    keys: Mapping[str, Any], given: Any, where: Callable[[Path], str]
) -> tuple[tuple[Unknown, ...], tuple[Problem, ...]]:
    """What a plan's `model` has that its type does not look for: warnings, and problems where --set named it and a key
    is near. `keys`: as resolved; `given`: as the plan has them, a name or a mapping."""
    typed = set(given) if isinstance(given, dict) else set()
    warned, refused = [], []
    for key, near in unread(keys, typed):
        place = where(("model", key)) if key in typed else ""
        path = f"model.{key}"
        if near and place.startswith(SET):
            allowed = f"{keys['model_type']} has no such key that is read"
            refused.append(Problem(path, "unknown key", allowed, f"Did you mean model.{near}?", place))
        elif near or place.startswith(SET):
            warned.append(Unknown(path, place, f"model.{near}" if near else ""))
    return tuple(warned), (*refused, *_twice(keys, where))
