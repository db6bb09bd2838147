"""A plan in YAML or JSON, from a file or standard input, to a draft."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import PLAN_FILE
from trainledger.importers.beside import with_files
from trainledger.importers.degrees_too import degrees_too
from trainledger.importers.document import Document, Path
from trainledger.importers.draft import Draft, Ignored, Unknown, Used
from trainledger.importers.files import read_text
from trainledger.importers.json_text import parse_json
from trainledger.importers.model_source import resolve_model
from trainledger.importers.model_words import in_plan
from trainledger.importers.sets import apply_sets
from trainledger.importers.yaml_text import parse_yaml

if TYPE_CHECKING:
    from trainledger.plan.acting import Roles


def read_draft(source: str, sets: Sequence[str] = (), stdin: IO[Any] | None = None) -> Draft:
    """The draft of the plan in a file (`-` is standard input), with every `--set` applied.

    Raises InputError with every problem of the text, of the changes, of the model and of the plan's keys.
    """
    text = read_text(source, PLAN_FILE, stdin=stdin)
    name = "<stdin>" if source == "-" else source
    document = parse_document(text, name)
    if document.data is None and not sets:
        raise InputError([Problem("", "an empty file", "a plan is a mapping of keys to values", where=name)])
    folder = "" if source == "-" else os.path.dirname(source)
    return draft_of(apply_sets(document, sets), folder)


def parse_document(text: str, name: str) -> Document:
    """The document of a text in JSON or YAML. Raises InputError when it is neither."""
    if name.endswith(".json"):
        return parse_json(text, name) if text.strip() else Document(None, {})
    if text.lstrip()[:1] in ("{", "["):
        try:
            return parse_json(text, name)
        except InputError as error:
            if any(problem.path for problem in error.problems):
                raise  # it is JSON, with keys given twice
    return parse_yaml(text, name)


def draft_of(document: Document, folder: str = "") -> Draft:
    """The draft of a plan as plain data. `folder` is where paths in it start; those of a command line start in the
    working folder. Raises InputError with every problem."""
    from trainledger.plan.read import read_plan
    from trainledger.plan.resolve import resolve
    from trainledger.plan.schema import as_mapping

    data = document.data
    problems: list[Problem] = []
    ignored: tuple[Ignored, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    if isinstance(data, dict) and "model" not in data and isinstance(data.get("model_type"), str):
        fix = "Write a plan that names it: model: path/to/config.json"
        raise InputError([Problem("", "a model's configuration", "a plan is expected", fix, document.where(()))])
    plan, keys = None, dict[str, Any]()
    try:
        whole = with_files(document, folder)
        plan = read_plan(whole.data, whole.where)
    except InputError as error:
        problems += error.problems
    try:
        keys, ignored = _model(data, folder, document)
        unknown, refused = in_plan(keys, data.get("model") if isinstance(data, dict) else None, document.where)
        problems += refused
    except InputError as error:
        problems += error.problems
    if problems or plan is None:
        raise InputError([*problems, *degrees_too(data, keys, problems, document)])
    roles = {} if plan.roles is None else {"roles": _roles(plan.roles, document, folder)}
    given = plan.model_copy(update={"model": keys, **roles})
    resolved, defaulted = resolve(given)
    used = tuple(Used(".".join(map(str, path)), value, document.where(path)) for path, value in _leaves(data, ()))
    return Draft(resolved, used, defaulted, ignored, unknown, data=as_mapping(given))


def _roles(roles: Roles, document: Document, folder: str) -> Roles:
    """The roles with the keys of the models that they name."""
    found = {}
    for name, role in roles.given():
        if role.model is None:
            continue
        own = document.folder(("roles", name, "model"), folder)
        try:
            found[name] = role.model_copy(update={"model": resolve_model(role.model, own)[0]})
        except InputError as error:
            raise InputError(
                [replace(one, path=f"roles.{name}.{one.path or 'model'}") for one in error.problems]
            ) from None
    return roles.model_copy(update=found)


def _model(data: Any, folder: str, document: Document) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    model = data.get("model") if isinstance(data, dict) else None
    if not (isinstance(model, str) and model.strip()) and not (isinstance(model, dict) and model):
        return {}, ()  # the plan's own check has said so
    try:
        return resolve_model(model, document.folder(("model", "name"), folder))
    except InputError as error:
        placed = [
            Problem(
                one.path or "model",
                one.found,
                one.allowed,
                one.fix,
                one.where or document.where(tuple(one.path.split("."))),
            )
            for one in error.problems
        ]
        raise InputError(placed) from None


def _leaves(data: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every value that was given; a model's keys and an empty mapping count as they stand."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path, data
