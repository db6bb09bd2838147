"""Megatron's further switches: a plan may name each under the argument's own name, as an option of the stack or of the
strategies, though it is not counted or moves no memory."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.import_megatron_silent import SETTLED, STEPS
from trainledger.facts.megatron_arguments import CONFIG, UNCOUNTED
from trainledger.facts.option_row import Direction, Kind, Row, harmless, uncounted
from trainledger.facts.options_parallel import PARALLEL_ROWS
from trainledger.facts.options_stack import STACK_ROWS

MAPS = ("parallel.options", "stack.options")


def _named(argument: str) -> str:
    return argument.removeprefix("--").replace("-", "_")


def _rows() -> Iterator[Row]:
    known = {row.name for row in (*PARALLEL_ROWS, *STACK_ROWS)}
    moving = {_named(name): way for name, way in UNCOUNTED if _named(name) not in known}
    still = dict.fromkeys(_named(name) for name in SETTLED if _named(name) not in known | set(moving))
    for where in MAPS:
        yield from uncounted(where, CONFIG, tuple((name, Kind.ANY, Direction(way)) for name, way in moving.items()))
        yield from harmless(where, STEPS, tuple((name, Kind.ANY) for name in still))


MEGATRON_ROWS: tuple[Row, ...] = tuple(_rows())
