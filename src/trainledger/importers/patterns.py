"""Regular expressions of parameter names, as front ends take them, to the patterns of a plan."""

from __future__ import annotations

import re

_ANY = re.compile(r"(?:\[0-9\]|\\d)[+*]?|\.\*|\.\+")
_LEFT = re.compile(r"[\\^$(){}|?+\[\]]")


def globbed(pattern: str) -> str:
    """A pattern in which `*` stands for any text; empty where the expression says more than such a pattern can."""
    text = pattern.strip().removeprefix("^").removesuffix("$")
    text = _ANY.sub("*", text).replace("\\.", ".")
    return "" if _LEFT.search(text) or not text.strip("*.") else text.strip(".")
