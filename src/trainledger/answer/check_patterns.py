"""PEFT's options of which modules, which layers, and what of each: refused where they are not as PEFT reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainledger.base.problems import Problem
from trainledger.plan.text import shown


def pattern_problems(options: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of an adapter's options."""
    for name, (fits, allowed) in _SHAPES.items():
        value = options.get(name)
        if value is not None and not fits(value):
            yield Problem(f"adapter.options.{name}", shown(value), f"allowed is {allowed}")


def _pattern(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _number(value: object, kinds: type | tuple[type, ...], least: int) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= least  # type: ignore[operator]


def _modules(value: object) -> bool:
    return _pattern(value) or (isinstance(value, list | tuple) and all(isinstance(one, str) for one in value))


def _layers(value: object) -> bool:
    return all(_number(one, int, 0) for one in (value if isinstance(value, list | tuple) else (value,)))


def _ranks(value: object) -> bool:
    return isinstance(value, dict) and all(_pattern(key) and _number(one, int, 1) for key, one in value.items())


def _scales(value: object) -> bool:
    return isinstance(value, dict) and all(
        _pattern(key) and _number(one, (int, float), 0) for key, one in value.items()
    )


_SHAPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "exclude_modules": (_modules, "a pattern of whole paths, or a list of modules"),
    "layers_to_transform": (_layers, "a layer's number, or a list of them"),
    "rank_pattern": (_ranks, "a mapping of patterns of modules to ranks, each a whole number of 1 or more"),
    "alpha_pattern": (_scales, "a mapping of patterns of modules to numbers"),
}
