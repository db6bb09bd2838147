"""How many processes a launcher's option says, one way for every family: which options, and what their values mean."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.facts.import_launch import COUNTING
from trainledger.importers.shell_words import Word

_PART = ":"


def option_name(text: str) -> str:
    """An option's name without its dashes, those within as underscores: torchrun and accelerate take both."""
    return text.lstrip("-").replace("-", "_")


def counted(text: str) -> int | None:
    """A count of at least 1; None where it is none. An elastic range (`1:4`) counts as its end, a batch system's
    `gpu:8` as its number."""
    last = text.rpartition(_PART)[-1]
    return int(last) if last.isdecimal() and int(last) else None


def visible(env: Mapping[str, Word]) -> int | None:
    """How many devices the environment shows to a run; None where it does not say."""
    for name in COUNTING:
        if name in env and env[name].known:
            return len([part for part in env[name].text.split(",") if part.strip()]) or None
    return None
