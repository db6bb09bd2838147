"""`trainledger.estimate`: a plan in, a result out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from trainledger.answer.estimate import estimate as answer_of
from trainledger.api.result import Result
from trainledger.base.problems import InputError, Problem
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.plan_file import draft_of, read_draft
from trainledger.importers.sets import apply_sets


def estimate(plan: Mapping[str, Any] | str | os.PathLike[str], **sets: Any) -> Result:
    """The estimate of a plan: its keys as a mapping, or the path of a file in YAML or JSON.

    `sets` changes keys, two underscores for each dot: `batch__micro_batch=2`. Raises InputError with every problem.
    """
    changes = [_change(name, value) for name, value in sets.items()]
    draft = _draft(plan, changes)
    return Result(answer_of(draft.plan), draft)


def _draft(plan: Mapping[str, Any] | str | os.PathLike[str], changes: list[str]) -> Draft:
    if isinstance(plan, Mapping):
        return draft_of(apply_sets(Document(_copied(plan), {}), changes))
    try:
        path = os.fspath(plan)
    except TypeError:
        found = f"found a value of type {type(plan).__name__}"
        raise InputError([Problem("plan", found, "a mapping of keys, or the path of a file, is needed")]) from None
    return read_draft(path, changes)


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
