"""From pydantic's errors to problems: the key's path, what was found, what is allowed, the nearest valid word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import takewhile
from typing import Any

from pydantic import BaseModel, ValidationError

from trainledger.base.problems import MISSPELT, TYPED, Problem, nearest
from trainledger.facts.options import OPTION_MAPS, option_names
from trainledger.facts.plan_words import TRIED
from trainledger.plan.schema import Plan
from trainledger.plan.text import LEAVE_OUT, Path, dotted, shown

_ALLOWED = {
    "bool_type": "allowed is true or false",
    "string_type": "allowed is text",
    "list_type": "allowed is a list",
    "tuple_type": "allowed is a list",
    "dict_type": "allowed is a mapping of keys to values",
    "model_type": "allowed is a mapping of keys to values",
    "model_attributes_type": "allowed is a mapping of keys to values",
}

# what files of other formats most often leave to the data or the command
_SAID = {
    "batch": "Say both: --set batch.micro_batch=1 --set batch.sequence=4096.",
    "batch.micro_batch": "Say it: --set batch.micro_batch=1.",
    "batch.sequence": "Say how long the longest sample is: --set batch.sequence=4096.",
    "model": "Say it: --set model=NAME, or a path to its config.json; trainledger models lists names.",
}


def problems_of(error: ValidationError) -> Iterator[tuple[Path, Problem]]:
    """Each error as (path within the plan, problem)."""
    for item in error.errors(include_url=False):
        path = tuple(part for part in item["loc"] if part != "[key]")
        problem = _problem(path, dict(item))
        yield path, replace(problem, fix=_filled(path)) if item["input"] is None and not problem.fix else problem


def _filled(path: Path) -> str:
    """What to do about a key that is null and may not be."""
    section = _section(path[:-1])
    fields = section.model_fields if section else {}
    needed = {field.alias or name for name, field in fields.items() if field.is_required()}
    return _SAID.get(dotted(path)) or ("Give it a value." if path[-1:] and path[-1] in needed else LEAVE_OUT)


def _problem(path: Path, item: dict[str, Any]) -> Problem:
    kind, context, found = item["type"], item.get("ctx", {}), shown(item["input"])
    name = dotted(path)
    if kind == "missing":
        return Problem(name, "missing", f"it is required: {_description(path)}", _SAID.get(name, ""))
    if kind == "extra_forbidden":
        return unknown_key(path)
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        near = nearest(item["input"], words) if isinstance(item["input"], str) else ""
        return Problem(name, found, "allowed is " + ", ".join(words), f"Did you mean {near}?" if near else "")
    if kind == "plan":
        allowed = context["allowed"]
        return Problem(
            name,
            context["found"],
            f"allowed is {allowed}" if not allowed.startswith("a device needs") else allowed,
            context["fix"],
        )
    fix = ""
    if kind == "string_type" and isinstance(item["input"], int | float):
        fix = (
            "Put it in quotes: a number loses its trailing zeros."
            if path[:2] == ("stack", "versions")
            else "Put it in quotes."
        )
    return Problem(name, found, _ALLOWED.get(kind, str(item["msg"])), fix)


def unknown_key(path: Path) -> Problem:
    """The problem of a key that the format does not have, with the key that is meant: a trainer's word for one, the
    nearest key there, the same word elsewhere."""
    siblings = fields_at(path[:-1])
    near = _meant(path, siblings)
    fix = f"Did you mean {near}?" if near else ""
    return Problem(dotted(path), "unknown key", f"keys here are {', '.join(siblings)}", fix)


def _meant(path: Path, siblings: Sequence[str]) -> str:
    word, section = str(path[-1]), dotted(path[:-1])
    spelt = nearest(word.lower(), (one for row in TRIED for one in row.words), MISSPELT)
    tried = [row.key for row in TRIED if spelt in row.words]
    here = [key for key in tried if section and key.startswith(f"{section}.")]
    same = [place for place in known_paths() if place.rsplit(".", 1)[-1] == word]
    inside = [place for place in same if section and place.startswith(f"{section}.")]
    near = nearest(word, siblings, TYPED) or ("" if same or tried else nearest(word, siblings))
    if here or (near and not inside):
        return here[0] if here else near
    if same or tried:
        return max((*inside, *tried, *same), key=lambda place: _shared(path, place))
    far = nearest(word, (place.rsplit(".", 1)[-1] for place in known_paths()), TYPED)
    return next((place for place in known_paths() if place.rsplit(".", 1)[-1] == far), "")


def _shared(path: Path, place: str) -> int:
    """How many first words a path has in common with a key of the format."""
    pairs = zip(map(str, path), place.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@cache
def known_paths() -> tuple[str, ...]:
    """Every key of the format as a dotted path, the names of the free maps included."""
    paths = list(_paths(Plan, ()))
    for place in OPTION_MAPS:
        paths.extend(f"{place}.{name}" for name in option_names(place))
    return tuple(paths)


def fields_at(path: Path) -> tuple[str, ...]:
    """The keys that the section at `path` has; empty when it is no section."""
    model = _section(path)
    return tuple(field.alias or name for name, field in model.model_fields.items()) if model else ()


def _paths(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        here = (*path, field.alias or name)
        yield ".".join(here)
        inner = _inner(field.annotation)
        if inner:
            yield from _paths(inner, here)


def _inner(annotation: Any) -> type[BaseModel] | None:
    options = (annotation, *getattr(annotation, "__args__", ()))
    return next((part for part in options if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _section(path: Path) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Plan
    for key in path:
        if isinstance(key, int):  # an element of a list has the keys that its field's type has
            continue
        field = model.model_fields.get(str(key)) if model else None
        model = _inner(field.annotation) if field else None
    return model


def _description(path: Path) -> str:
    model = _section(path[:-1])
    field = model.model_fields.get(str(path[-1])) if model else None
    return field.description.rstrip(".") if field and field.description else "see `trainledger schema`"


def touches(path: str, other: str) -> bool:
    """Whether two dotted paths are one, or one lies under the other."""
    return path == other or path.startswith(f"{other}.") or other.startswith(f"{path}.")
