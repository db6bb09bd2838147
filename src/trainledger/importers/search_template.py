"""What a search begins with: a model's name alone, or files whose other keys are kept, as a plan's plain data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from trainledger.answer.search_goal import parse_devices, space_of
from trainledger.base.problems import InputError
from trainledger.importers.beside import with_files
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.model_source import resolve_model
from trainledger.importers.outside import read_any
from trainledger.importers.sets import apply_sets
from trainledger.plan.schema import as_mapping

FRAMEWORK = "megatron"
WORLD = "parallel.world"
Said = tuple[Mapping[str, str] | None, Mapping[str, str] | None]
AGAIN = ("precision", "parallel", "batch", "stack")  # sections whose defaults follow from what a search changes


def template_of(
    sources: Sequence[str],
    sets: Sequence[str] = (),
    framework: str = "",
    devices: str = "",
    said: Said = (None, None),
) -> dict[str, Any]:
    """The plan's plain data, its model's keys in place. A single word that is no file is a model's name. Files that do
    not say over how many ranks their run goes are read for those of `devices` (`8xa100-80gb`); `said`: a script's
    variables, and releases.

    Raises InputError with every problem.
    """
    if len(sources) == 1 and not os.path.exists(sources[0]) and sources[0] != "-":
        given = space_of(framework or FRAMEWORK).given
        stack = {**given.get("stack", {}), "framework": framework or FRAMEWORK}
        plan = apply_sets(Document({**given, "model": sources[0], "stack": stack}, {}), sets)
        return filled(with_files(plan, "").data)
    draft = _drafted(sources, sets, devices, said)
    data = as_mapping(draft.plan)
    for one in draft.defaulted:
        _drop(data, one.path.split("."))
    if framework:
        data.setdefault("stack", {})["framework"] = framework
    data.setdefault("stack", {}).setdefault("framework", draft.plan.stack.framework)
    return data


def _drafted(sources: Sequence[str], sets: Sequence[str], devices: str, said: Said) -> Draft:
    try:
        return read_any(sources, sets, *said)
    except InputError as error:
        if not devices or any(one.path != WORLD for one in error.problems):
            raise
        return read_any(sources, [*sets, f"{WORLD}={parse_devices(devices)[0]}"], *said)


def filled(data: Any) -> dict[str, Any]:
    """A plan's plain data with its model's keys in place. Raises InputError where the model is not known."""
    model = data.get("model") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(model, str | dict):
        raise InputError([])
    return {**data, "model": resolve_model(model)[0]}


def _drop(data: dict[str, Any], path: list[str]) -> None:
    """Take out a key that was filled in, of the sections whose defaults are filled in anew."""
    if path[0] not in AGAIN or path[:2] == ["stack", "versions"]:
        return
    part: Any = data
    for name in path[:-1]:
        part = part.get(name) if isinstance(part, dict) else None
    if isinstance(part, dict):
        part.pop(path[-1], None)
