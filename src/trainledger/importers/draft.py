"""A draft: the plan that an outside file describes, and how each of its keys came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainledger.plan.resolve import Default
    from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Used:
    """A key that was given: its dotted path, its value, and where it stands (`file:line`, `--set`, ...)."""

    path: str
    value: object
    where: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A key of an outside file that the plan has no use for, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key of an outside file that its format is not known to have, where it stands, and the nearest known one."""

    path: str
    where: str
    near: str = ""


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A key of an outside file that moves memory and is not counted, where it stands, and which way that errs."""

    path: str
    where: str
    direction: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A resolved plan (its model's keys in place, defaults filled in) with what was used, defaulted and ignored; of
    outside files also what is unknown and what is not counted, and which formats they were taken for. `data`: the keys
    that were given, as plain data with the model's keys in place, before defaults: what a changed plan starts from."""

    plan: Plan
    used: tuple[Used, ...]
    defaulted: tuple[Default, ...]
    ignored: tuple[Ignored, ...]
    unknown: tuple[Unknown, ...] = ()
    uncounted: tuple[Uncounted, ...] = ()
    formats: tuple[tuple[str, str], ...] = ()  # file, format
    data: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
