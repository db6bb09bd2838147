"""The other direction: keys of a plan as keys of an outside file. What a format's emitter is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_rows import KeyRow
from trainledger.facts.import_words import WordRow
from trainledger.facts.option_row import Effect
from trainledger.facts.options import find_option
from trainledger.plan.schema import Plan, as_mapping

ARGS, OWN, LAUNCH, ENV = "args", "own", "launch", "env"


@dataclass(frozen=True, slots=True)
class Names:
    """Files that are written together: the format's own, the script that starts the run, further settings, and the
    folder of the model's configuration."""

    main: str
    script: str
    settings: str
    model: str


@dataclass(frozen=True, slots=True)
class Line:
    """A key of an outside file, its value, and the plan's key that gives it; `part`: the arguments of a program, the
    format's own file, the launcher's options, or variables."""

    part: str
    key: str
    value: Any
    path: str = ""


Lever = tuple[tuple[Line, ...], ...]  # ways to say one thing, the plainest first


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a format says of a plan: lines, and levers, of each of which the way is taken that reads back nearest to
    the plan. `model`: a configuration of the model that is written beside the files, where no name stands for it."""

    lines: tuple[Line, ...]
    levers: tuple[Lever, ...] = ()
    model: Mapping[str, Any] | None = None


class Said:
    """A resolved plan's values by dotted key; null and what is left out are None. `partial`: single keys are wanted, no
    whole files, so that a model or a task which a format has no word for is left out."""

    def __init__(self, plan: Plan, partial: bool = False) -> None:
        self.plan, self.partial = plan, partial
        self.values = dict(leaves({**as_mapping(plan), "model": {}}))
        self.values["batch.accumulation"] = plan.batch.accumulation

    def get(self, path: str, default: Any = None) -> Any:
        """The value of a key."""
        value = self.values.get(path)
        return default if value is None else value

    def whole(self, path: str, default: int = 1) -> int:
        """A count."""
        return int(self.get(path, default))

    def below(self, path: str) -> dict[str, Any]:
        """The values inside a mapping, by what follows of their key."""
        return {
            key.removeprefix(f"{path}."): value
            for key, value in self.values.items()
            if key.startswith(f"{path}.") and value is not None
        }

    def nodes(self, each: int) -> tuple[int, int]:
        """Nodes, and ranks of each, where a node has at most `each` devices."""
        world = self.whole("parallel.world")
        return (1, world) if world <= each or world % each else (world // each, each)


def leaves(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value inside mappings, by its dotted key; lists are values, and so is a mapping of patterns, whose keys
    have dots of their own."""
    for key, value in data.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict) and not any("." in str(one) for one in value):
            yield from leaves(value, name)
        else:
            yield name, tuple(value) if isinstance(value, list) else value


def nested(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Values by dotted keys as mappings inside mappings."""
    data: dict[str, Any] = {}
    for name, value in pairs:
        *outer, last = name.split(".")
        part = data
        for key in outer:
            part = part.setdefault(key, {})
        part[last] = list(value) if isinstance(value, tuple) else value
    return data


def word(words: Mapping[str, str] | Mapping[str, WordRow], value: object) -> str | None:
    """The first outside word that stands for a plan's value; None where there is none."""
    for name, one in words.items():
        if (one.value if isinstance(one, WordRow) else one) == value:
            return name
    return None


def straight(rows: Iterable[KeyRow], said: Said, part: str) -> Iterator[Line]:
    """Lines of the rows whose value a key of the plan takes as it is: of several names for one key the first."""
    done: set[str] = set()
    for row in rows:
        value = said.get(row.path) if row.path else None
        if value is not None and row.path not in done:
            done.add(row.path)
            yield Line(part, row.name, value, row.path)


def moves(path: str) -> bool:
    """Whether a key of the plan is no option, or one that moves memory."""
    for where in ("optimizer.options", "adapter.options", "parallel.options", "stack.options", "stack.env"):
        if path.startswith(f"{where}."):
            row = find_option(where, path.removeprefix(f"{where}."))
            return row is None or row.effect is not Effect.NONE
    return True


def refuse(said: Said, path: str, allowed: str, fix: str = "") -> InputError:
    """That a format cannot say what a key of the plan has."""
    section, _, key = path.partition(".")
    value = said.plan.keys().get(key or "name") if section == "model" else said.get(path)
    return InputError([Problem(path, f"found {value}", allowed, fix)])
