"""Every key of a plan's free maps (`options`, `env`, `allocator`) and its effect. A name without a row is refused."""

from __future__ import annotations

from trainledger.facts.option_row import Direction, Effect, Kind, Row
from trainledger.facts.options_megatron import further
from trainledger.facts.options_parallel import PARALLEL_ROWS
from trainledger.facts.options_stack import STACK_ROWS
from trainledger.facts.options_training import TRAINING_ROWS

__all__ = ["OPTION_MAPS", "ROWS", "Direction", "Effect", "Kind", "Row", "find_option", "option_names"]

OPTION_MAPS = (
    "optimizer.options",
    "adapter.options",
    "parallel.options",
    "stack.options",
    "stack.env",
    "stack.allocator",
)
_OWN = frozenset(row.name for row in (*PARALLEL_ROWS, *STACK_ROWS))
MEGATRON_ROWS: tuple[Row, ...] = tuple(further(_OWN))
ROWS: dict[tuple[str, str], Row] = {
    (row.where, row.name): row for row in (*PARALLEL_ROWS, *STACK_ROWS, *TRAINING_ROWS, *MEGATRON_ROWS)
}


def find_option(where: str, name: str) -> Row | None:
    """The row of the option `name` (dotted when nested) of the map `where`, or None when there is none."""
    return ROWS.get((where, name))


def option_names(where: str) -> tuple[str, ...]:
    """Every name that the map `where` may hold, sorted; nested names are dotted."""
    return tuple(sorted(name for place, name in ROWS if place == where))
