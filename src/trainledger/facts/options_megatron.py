"""Megatron's further switches: a plan may name each under the argument's own name, as an option of the stack or of the
strategies, though it is not counted or moves no memory."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.import_megatron_silent import SETTLED, STEPS
from trainledger.facts.megatron_arguments import CONFIG, UNCOUNTED
from trainledger.facts.option_row import Kind, Row, harmless, uncounted

MAPS = ("parallel.options", "stack.options")


def _named(argument: str) -> str:
    return argument.removeprefix("--").replace("-", "_")


def further(known: frozenset[str]) -> Iterator[Row]:
    """Rows of both maps for the arguments that have none of their own there (`known`: names that do)."""
    moving = {_named(name): way for name, way in UNCOUNTED if _named(name) not in known}
    still = dict.fromkeys(_named(name) for name in SETTLED if _named(name) not in known | set(moving))
    for where in MAPS:
        yield from uncounted(where, CONFIG, tuple((name, Kind.ANY, way) for name, way in moving.items()))
        yield from harmless(where, STEPS, tuple((name, Kind.ANY) for name in still))
