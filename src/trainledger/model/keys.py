"""Reading a model's keys: the config class's defaults filled in, every problem collected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import LAYERS, MODEL_SIZE

Chosen = TypeVar("Chosen")
LAYER = "layer"


class Keys:
    """A family's keys with its defaults. Integers are checked; all problems are raised together by `check`.

    `asked`: the names that were looked for."""

    __slots__ = ("asked", "given", "preset", "problems")

    def __init__(self, given: Mapping[str, Any], preset: Mapping[str, Any]) -> None:
        self.given = given
        self.preset = preset
        self.asked: set[str] = set()
        self.problems: list[Problem] = []

    def raw(self, *names: str, default: Any = None) -> Any:
        """The first of these keys that is given and not null, else the family's default, else `default`."""
        self.asked.update(names)
        for source in (self.given, self.preset):
            for name in names:
                if source.get(name) is not None:
                    return source[name]
        return default

    def nullable(self, name: str, default: Any = None) -> Any:
        """As `raw`, but a null that is given stays null: some classes read it as "without"."""
        self.asked.add(name)
        return self.given[name] if name in self.given else self.raw(name, default=default)

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A count of at least `least`; the problem is noted and `least` returned when it is not one."""
        value = self.raw(*names, default=default)
        broken = isinstance(value, float) and not value.is_integer()
        if isinstance(value, bool) or not isinstance(value, int | float) or broken or value < least:
            found = "missing" if value is None else f"found {value!r}"
            self.problems.append(Problem(f"model.{names[0]}", found, f"a whole number of at least {least} is needed"))
            return least
        limit = LAYERS if LAYER in names[0] else MODEL_SIZE
        if value > limit.value:
            allowed = f"at most {limit.value:,} {limit.unit} are read"
            self.problems.append(Problem(f"model.{names[0]}", f"found {value!r}", allowed))
            return least
        return int(value)

    def number(self, *names: str, default: float = 0.0) -> float:
        """A number that is not negative."""
        value = self.raw(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            self.problems.append(
                Problem(f"model.{names[0]}", f"found {value!r}", "a number that is not negative is needed")
            )
            return 0.0
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw(*names, default=default)
        if not isinstance(value, bool):
            self.problems.append(Problem(f"model.{names[0]}", f"found {value!r}", "true or false is needed"))
            return default
        return value

    def text(self, *names: str, default: str = "") -> str:
        """A word."""
        value = self.raw(*names, default=default)
        return value if isinstance(value, str) else default

    def choice(self, name: str, known: Mapping[str, Chosen], default: Chosen) -> Chosen:
        """What a word stands for; a word that is not known is noted and `default` returned."""
        value = self.raw(name)
        if isinstance(value, str) and value in known:
            return known[value]
        if value is not None:
            self.refuse(name, value, f"one of {', '.join(sorted(known))} is known")
        return default

    def indices(self, name: str) -> tuple[int, ...]:
        """A list of layer numbers; empty when the key is missing or null."""
        value = self.raw(name, default=())
        if isinstance(value, list | tuple) and all(isinstance(at, int) and at >= 0 for at in value):
            return tuple(value)
        self.refuse(name, value, "a list of layer numbers is needed")
        return ()

    def refuse(self, name: str, found: Any, need: str) -> None:
        """Note a problem with a key."""
        self.problems.append(Problem(f"model.{name}", f"found {found!r}", need))

    def divides(self, part: str, parts: int, whole: str, size: int) -> int:
        """size / parts, noting a problem (and returning 1) when it does not divide."""
        if parts < 1 or size % parts:
            self.problems.append(
                Problem(f"model.{part}", f"found {parts}", f"it must divide {whole} = {size}", _nearest(parts, size))
            )
            return 1
        return size // parts

    def check(self) -> None:
        """Raise InputError with every problem found so far."""
        if self.problems:
            raise InputError(dict.fromkeys(self.problems))


def _nearest(parts: int, size: int) -> str:
    low = next((n for n in range(min(max(parts, 1), size), 0, -1) if size % n == 0), 1)
    return f"The nearest that does is {low}."
