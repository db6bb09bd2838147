"""Operations with other weights in the place of those they read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from trainledger.model.program import Op, Spec, Weight


def mapped(op: Op, change: Callable[[Weight], Weight]) -> Op:
    """The operation with each of its weights changed."""
    spec = spec_with(op.spec, change)
    return op if spec is op.spec else replace(op, spec=spec)


def spec_with(spec: Spec, change: Callable[[Weight], Weight]) -> Spec:
    """What an operation is, with each of its weights changed."""
    given = {field.name: getattr(spec, field.name) for field in fields(spec)}
    made = {name: _with(value, change) for name, value in given.items()}
    changed = {name: value for name, value in made.items() if value is not given[name]}
    if not changed:
        return spec
    found: Spec = replace(spec, **changed)  # type: ignore[arg-type]
    return found


def _with(value: object, change: Callable[[Weight], Weight]) -> object:
    if isinstance(value, Weight):
        return change(value)
    if isinstance(value, tuple):
        made = tuple(_with(one, change) for one in value)
        return made if any(new is not old for new, old in zip(made, value, strict=True)) else value
    return value
