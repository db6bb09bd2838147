"""`trainledger.estimate`: a plan in, a result out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from trainledger.answer.estimate import estimate as answer_of
from trainledger.api.result import Result
from trainledger.base.problems import InputError, Problem
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of
from trainledger.importers.sets import apply_sets

Given = Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def estimate(plan: Given, **sets: Any) -> Result:
    """The estimate of a plan: its keys as a mapping, the path of a file, or the paths of a run's own files together.

    `sets` changes keys, two underscores for each dot: `batch__micro_batch=2`. Raises InputError with every problem.
    """
    draft = draft_from(plan, changed(sets))
    return Result(answer_of(draft.plan), draft)


def changed(sets: Mapping[str, Any]) -> list[str]:
    """Changes as `--set` has them. Raises InputError for a value that no plan holds."""
    return [_change(name, value) for name, value in sets.items()]


def draft_from(plan: Given, changes: list[str]) -> Draft:
    """The draft of a plan's keys, or of files. Raises InputError with every problem."""
    if isinstance(plan, Mapping):
        return draft_of(apply_sets(Document(_copied(plan), {}), changes))
    paths = plan if isinstance(plan, list | tuple) else (plan,)
    try:
        named = [os.fspath(path) for path in paths]
    except TypeError:
        found = f"found a value of type {type(plan).__name__}"
        raise InputError([Problem("plan", found, "a mapping of keys, or the path of a file, is needed")]) from None
    return read_any(named, changes)


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
        raise InputError([Problem(path, found, allowed)]) from None
