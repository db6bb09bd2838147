"""From plain data to a plan, or to the list of everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import NESTING
from trainledger.facts.phases import POLICY
from trainledger.plan.acting import Roles
from trainledger.plan.check import findings
from trainledger.plan.options import check_options
from trainledger.plan.problems import problems_of, touches
from trainledger.plan.roles import overlaid
from trainledger.plan.schema import NULL_MEANS_LEFT_OUT, Plan
from trainledger.plan.text import Path, dotted, shown

Where = Callable[[Path], str]
PLACEHOLDERS: dict[Path, Any] = {
    ("model",): "unknown",
    ("batch",): {"micro_batch": 1, "sequence": 1},
    ("batch", "micro_batch"): 1,
    ("batch", "sequence"): 1,
    ("adapter", "kind"): "lora",
    ("quantization", "kind"): "int8",
}


def nowhere(path: Path) -> str:
    """The place of keys that came from no file."""
    return ""


def read_plan(data: object, where: Where = nowhere) -> Plan:
    """The plan that plain data (mappings, lists, texts, numbers, null) describes.

    `where` tells a key's place (`file:line`) for messages. Raises InputError with every problem found, all at once.
    """
    if not isinstance(data, dict):
        found = "empty" if data is None else shown(data)
        raise InputError([Problem("", found, "a plan is a mapping of keys to values", where=where(()))])
    problems: list[tuple[Path, Problem]] = list(_plain(data))
    if problems:
        raise InputError(_placed(problems, where))
    clean = _copy(data)
    for section in NULL_MEANS_LEFT_OUT:
        _drop_null(clean, section)
    for path, problem, value in list(check_options(clean)):
        if problem is None and value is not None:
            _put(clean, path, value)
        elif problem is None:
            _remove(clean, path)
        else:
            problems.append((path, problem))
            _remove(clean, path)
    plan, broken = _validate(clean, problems)
    if plan is not None:
        hidden = {dotted(path) for path in broken}
        for finding in findings(plan):
            if not any(touches(key, name) for key in finding.keys for name in hidden):
                problems.append((tuple(finding.problem.path.split(".")), finding.problem))
    if not problems and plan is not None and plan.roles is not None:
        problems += _of_roles(clean, plan.roles)
    if problems or plan is None:
        raise InputError(_placed(problems, where))
    return plan


def _of_roles(clean: dict[str, Any], roles: Roles) -> Iterable[tuple[Path, Problem]]:
    """What is wrong with the plan of each role, under the role's name."""
    for name, _ in roles.given():
        if name == POLICY:
            continue
        try:
            read_plan(overlaid(clean, name))
        except InputError as error:
            for problem in error.problems:
                path = ("roles", name, *problem.path.split("."))
                yield path, replace(problem, path=dotted(path))


def _validate(clean: dict[str, Any], problems: list[tuple[Path, Problem]]) -> tuple[Plan | None, list[Path]]:
    """The plan; with wrong keys, the plan without them, so that what can still be checked is."""
    try:
        return Plan.model_validate(clean), []
    except ValidationError as error:
        found = list(problems_of(error))
    problems.extend(found)
    broken: list[Path] = []
    for path, _ in found:
        cut = next((path[:at] for at, part in enumerate(path) if isinstance(part, int)), path)
        broken.append(cut)
        if cut in PLACEHOLDERS:
            _put(clean, cut, PLACEHOLDERS[cut])
        else:
            _remove(clean, cut)
    try:
        return Plan.model_validate(clean), broken
    except ValidationError:
        return None, broken


def _placed(problems: Iterable[tuple[Path, Problem]], where: Where) -> list[Problem]:
    return [problem if problem.where else replace(problem, where=where(path)) for path, problem in problems]


def _plain(data: object) -> Iterable[tuple[Path, Problem]]:
    """What is not plain data: keys that are no text, values of other kinds, nesting without end."""
    stack: list[tuple[Path, object]] = [((), data)]
    while stack:
        path, value = stack.pop()
        if len(path) > NESTING.value:
            yield (
                path,
                Problem(dotted(path[:4]), "nested too deeply", f"at most {NESTING.value} {NESTING.unit} are read"),
            )
        elif isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, str):
                    stack.append(((*path, key), item))
                else:
                    yield (
                        (*path, shown(key)),
                        Problem(
                            dotted((*path, shown(key))), "a key that is no text", "keys are names", "Put it in quotes."
                        ),
                    )
        elif isinstance(value, list | tuple):
            stack.extend(((*path, at), item) for at, item in enumerate(value))
        elif value is not None and not isinstance(value, str | int | float | bool):
            yield (
                path,
                Problem(
                    dotted(path),
                    f"a {type(value).__name__}",
                    "values are texts, numbers, true, false, null, lists and mappings",
                ),
            )


def _copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, list | tuple) else data


def _parent(data: dict[str, Any], path: Path) -> dict[Any, Any] | None:
    part: Any = data
    for key in path[:-1]:
        part = part.get(key) if isinstance(part, dict) else None
    return part if isinstance(part, dict) else None


def _drop_null(data: dict[str, Any], path: Path) -> None:
    parent = _parent(data, path)
    if parent is not None and path[-1] in parent and parent[path[-1]] is None:
        del parent[path[-1]]


def _remove(data: dict[str, Any], path: Path) -> None:
    parent = _parent(data, path)
    if parent is not None:
        parent.pop(path[-1], None)


def _put(data: dict[str, Any], path: Path, value: Any) -> None:
    parent = _parent(data, path)
    if parent is not None:
        parent[path[-1]] = value
