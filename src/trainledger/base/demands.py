"""What a number of an input must fulfil, and the nearest number that fulfils all that is asked of it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trainledger.base.problems import Problem

REACH = 2**13  # how far from the number given the nearest one that can be is looked for


@dataclass(frozen=True, slots=True)
class Demand:
    """A rule on the whole number at a key's path: `found` and `allowed` are the words of the problem where it breaks.

    `fits` says of any number >= 1 whether the rule would hold with it, all other keys as they are.
    """

    path: str
    value: int
    found: str
    allowed: str
    fits: Callable[[int], bool]


def problems_of(demands: Iterable[Demand]) -> tuple[Problem, ...]:
    """A problem for every demand that does not hold, in their order.

    The fix names the nearest number (the lower of two as near) that fulfils every demand on the same key; it is left
    out where none lies within reach.
    """
    asked = tuple(demands)
    return tuple(
        Problem(one.path, one.found, one.allowed, _fix(one, asked)) for one in asked if not one.fits(one.value)
    )


def _fix(broken: Demand, asked: tuple[Demand, ...]) -> str:
    near = nearest_number(broken.value, [one.fits for one in asked if one.path == broken.path])
    return "" if near is None else f"The nearest that can is {near}."


def nearest_number(value: int, rules: Iterable[Callable[[int], bool]]) -> int | None:
    """The number >= 1 nearest to `value` that fulfils every rule, the lower of two as near; None out of reach."""
    every = tuple(rules)
    for distance in range(REACH):
        for number in (value - distance, value + distance):
            if number >= 1 and all(rule(number) for rule in every):
                return number
    return 1 if all(rule(1) for rule in every) else None


def divides(path: str, value: int, size: int, name: str) -> Demand:
    """The demand that the number at `path` divides `size`, which `name` names (`the attention heads`)."""
    return Demand(
        path,
        value,
        f"{value} does not divide {name} ({size})",
        f"a divisor of {size} is needed",
        lambda n: size % n == 0,
    )


def multiple(path: str, value: int, of: int, name: str) -> Demand:
    """The demand that the number at `path` is a multiple of `of`, which `name` names (`tp 8 x pp 4`)."""
    return Demand(
        path, value, f"{value} is no multiple of {name}", f"a multiple of {of} is needed", lambda n: n % of == 0
    )
