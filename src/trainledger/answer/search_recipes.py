"""Published runs of a search's goal: where they rank, and why they are not first where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from trainledger.answer.search_answer import Found, Recipe
from trainledger.answer.search_goal import DEGREES, Goal
from trainledger.answer.search_space import Grid
from trainledger.facts.limits import SMALL
from trainledger.facts.search_recipes import PUBLISHED, Published

Sought = Callable[[Sequence[int]], tuple[Found | None, int]]


def recipes_of(goal: Goal, grid: Grid, sought: Sought) -> tuple[Recipe, ...]:
    """The published runs of this model, device, count, batch and length."""
    found = []
    for one in PUBLISHED:
        if _same(goal, one):
            rows = rows_of(grid, one.degrees)
            best, of = sought(rows) if rows else (None, 0)
            found.append(Recipe(one, best, of, tuple(_differs(goal, one))))
    return tuple(found)


def _same(goal: Goal, one: Published) -> bool:
    name = str(goal.keys.get("name", "")).rsplit("/", maxsplit=1)[-1].lower()
    known = name.removesuffix("-instruct").removeprefix("meta-") in one.models
    count = (goal.devices, goal.global_batch, goal.sequence) == (one.devices, one.global_batch, one.sequence)
    return known and count and goal.device.name == one.device and goal.megatron


def rows_of(grid: Grid, degrees: Mapping[str, int]) -> list[int]:
    """Rows of the candidates with these degrees (those left out are 1; etp where experts are not spread is any)."""
    wanted = {name: degrees.get(name, 1) for name in DEGREES}
    hits = grid.column("micro_batch") == degrees.get("micro_batch", 1)
    for name, value in wanted.items():
        if name != "etp" or degrees.get("ep", 1) > 1:
            hits = hits & (grid.column(name) == value)
    return [int(row) for row in hits.nonzero()[0]]


def _differs(goal: Goal, one: Published) -> Iterator[str]:
    compute = goal.template.get("precision", {}).get("compute", "bf16")
    if compute != one.compute:
        yield f"its products were in {one.compute}, the goal's are in {compute}"


def why(first: Found, other: Found, parts: Mapping[str, str]) -> tuple[str, ...]:
    """Where the time of one plan and of another part: the parts that differ, largest first. `parts`: their names."""
    gaps = sorted(((other.times[name] - first.times[name], name) for name in parts), key=lambda gap: -abs(gap[0]))
    lines = [
        f"{parts[name]}: {abs(gap):.3g} s {'more' if gap > 0 else 'less'}"
        for gap, name in gaps
        if abs(gap) > _least(first)
    ]
    return tuple(lines)


def _least(first: Found) -> float:
    """Seconds that are not worth naming."""
    return first.step * SMALL.share
