"""What the library takes as a plan: its keys, a file, or a run's own files; and how keys are changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from trainledger.base.problems import wrong
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of
from trainledger.importers.sets import apply_sets

Given = Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def _changed(sets: Mapping[str, Any]) -> list[str]:
    """Changes as `--set` has them. Raises InputError for a value that no plan holds."""
    return [_change(name, value) for name, value in sets.items()]


def draft_from(plan: Given, sets: Mapping[str, Any]) -> Draft:
    """The draft of a plan's keys, of a file, or of a run's files together, with keys changed. Raises InputError with
    every problem."""
    changes = _changed(sets)
    if isinstance(plan, Mapping):
        return draft_of(apply_sets(Document(_copied(plan), {}), changes))
    return read_any(paths_of(plan), changes)


def paths_of(plan: Given) -> list[str]:
    """The paths of a plan's file, or of a run's files. Raises InputError for what is no path."""
    paths = plan if isinstance(plan, list | tuple) else (plan,)
    named = list[str]()
    for path in paths:
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str):
            found = f"found a value of type {type(text).__name__}"
            raise wrong("plan", found, "a mapping of keys, or the path of a file, is needed")
        named.append(text)
    return named


def _copied(value: Any) -> Any:
    """Mappings and tuples as the readers of files make them: dict and list."""
    if isinstance(value, Mapping):
        return {str(name): _copied(part) for name, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, list | tuple) else value


def _change(name: str, value: Any) -> str:
    path = name.replace("__", ".")
    try:
        return f"{path}={json.dumps(value)}"
    except (TypeError, ValueError):
        found = f"found a value of type {type(value).__name__}"
        allowed = "text, a number, a truth value, a list or a mapping is needed"
        raise wrong(path, found, allowed) from None


def name_of(plan: Given, number: int) -> str:
    """What a plan is called: its files, or its place among those compared. Raises InputError for what is no plan."""
    return f"plan {number}" if isinstance(plan, Mapping) else " + ".join(paths_of(plan))
