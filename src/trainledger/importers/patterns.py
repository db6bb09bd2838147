"""Regular expressions of parameter names, as front ends take them, to the patterns of a plan, and back.

Axolotl's match from the start of a name to anywhere in it, a dot is a dot, and rows that a trailing range names are
trained with the whole weight. Source: axolotl/utils/freeze.py, LayerNamePattern (0.4 to 0.17).
"""

from __future__ import annotations

import re
from itertools import cycle, product

from trainledger.model.names import trimmed

_ROWS = re.compile(r"^(.+)\[[0-9]*(?::[0-9]*)?\]$")
_CHOICE = re.compile(r"\((?:\?:)?([^()]*)\)(?![?*+{])")
_REPEATED = re.compile(r"(\[[\w-]+\])[+*]")
_ANY = re.compile(r"\[\^/\][*+]|\.\*|\.\+")
_LEFT = re.compile(r"[\\^$(){}|+?]|\[[^\]]*[^\w\]-]|\[[^\]]*$")
_WHOLE = ("weight", "bias", "*")  # ends behind which a name has no more


def globbed(expression: str) -> tuple[str, ...]:
    """Patterns that mean what the expression does; none where it says more than such patterns can."""
    text = expression.strip()
    rows = _ROWS.match(text)
    found = [_globbed(one) for one in _choices(rows.group(1) if rows else text)]
    return tuple(found) if all(found) else ()


def _choices(text: str) -> list[str]:
    """The texts that an expression stands for, one for each choice of its groups."""
    parts = [part.split("|") if inside else [part] for part, inside in zip(_CHOICE.split(text), cycle((False, True)))]
    return ["".join(one) for one in product(*parts)]


def _globbed(text: str) -> str:
    ended = text.endswith("$")
    text = text.removeprefix("^").removesuffix("$").replace("\\d", "[0-9]")
    text = _ANY.sub("*", _REPEATED.sub(r"\1*", text)).replace("\\.", ".")
    if _LEFT.search(text) or not text.strip("*."):
        return ""
    whole = ended or text.endswith((".", *_WHOLE))
    return text.strip(".") if whole else f"{text.strip('.')}*"


def expression_of(pattern: str, top: tuple[str, ...]) -> str:
    """The expression of a plan's pattern; `top`: first parts of the names that there are."""
    text = trimmed(pattern)
    start = "" if text.partition(".")[0] in top else ".+." if not text.startswith("*") else ".+"
    body = text.removeprefix("*").replace("*", "[^/]*").replace("?", "[^/]")
    return f"{start}{body}" if text.endswith(_WHOLE) else f"{start}{body}."
