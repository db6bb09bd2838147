"""The answer of `states` as text: rows of cells, and lines beneath them."""

from __future__ import annotations

from trainledger.answer.states import TOTAL_UNITS, RecipeStates, States
from trainledger.base.units import format_count, format_size
from trainledger.facts.recipes import OPTIMIZER_COPIES, Copy, Grouping

HEAD = ("recipe", "B/param", "weights", "gradients", "master", "optimizer", "GB", "GiB", "TB", "TiB")
SHARE_HEAD = ("recipe", "weights", "gradients", "optimizer", "weights+master", "gradients", "moments")
GRADIENTS = (Copy.GRADIENTS, Copy.MAIN_GRADIENTS)
COLUMNS = ((Copy.WEIGHTS,), GRADIENTS, (Copy.MASTER,), OPTIMIZER_COPIES)

Table = tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]


def bytes_table(answer: States) -> Table:
    """Header and rows: bytes per parameter by kind, and totals in decimal and binary units."""
    return HEAD, tuple(_bytes_row(recipe) for recipe in answer.recipes)


def shares_table(answer: States) -> Table:
    """Header and rows: shares in percent with the master weights among the optimizer's, then among the weights."""
    return SHARE_HEAD, tuple(_shares_row(recipe) for recipe in answer.recipes)


def ranks_table(answer: States, unit: str = "GiB") -> Table:
    """Header and rows: bytes on the fullest rank under each strategy, each with its formula over d ranks."""
    header = ("recipe", *(row.strategy for row in answer.recipes[0].per_rank))
    return header, tuple(
        (recipe.name, *(f"{format_size(row.bytes, unit)} [{row.formula}]" for row in recipe.per_rank))
        for recipe in answer.recipes
    )


def disk_table(answer: States, unit: str = "GiB") -> Table:
    """Header and rows: checkpoint bytes, metadata left out."""
    rows = (
        (recipe.name, *(format_size(size, unit) for size in (disk.weights_only, disk.full, disk.full_and_export)))
        for recipe in answer.recipes
        for disk in (recipe.checkpoint,)
    )
    return ("recipe", "weights only", "weights and optimizer", "and exported weights"), tuple(rows)


def title(answer: States) -> str:
    """What was asked: `5.00 T parameters, d = 64`."""
    return f"{format_count(answer.parameters)} parameters, d = {answer.ranks:,} data-parallel ranks"


def notes(answer: States) -> tuple[str, ...]:
    """What each recipe is, with its source, and its warnings."""
    lines: list[str] = []
    for recipe in answer.recipes:
        lines.append(f"{recipe.name}: {recipe.title}. {recipe.source}")
        lines.extend(f"  warning: {text}" for text in recipe.warnings)
    return tuple(lines)


def _bytes_row(recipe: RecipeStates) -> tuple[str, ...]:
    sizes = dict(recipe.by_kind)
    cells = (" + ".join(f"{sizes[copy]:g}" for copy in column if copy in sizes) or "0" for column in COLUMNS)
    totals = dict(recipe.totals)
    shown = (f"{totals[unit]:,.2f}" for unit in TOTAL_UNITS)
    return (recipe.name, f"{recipe.bytes_per_parameter:g}", *cells, *shown)


def _shares_row(recipe: RecipeStates) -> tuple[str, ...]:
    by_grouping = dict(recipe.shares)
    order = (Grouping.WITH_OPTIMIZER, Grouping.WITH_WEIGHTS)
    return (recipe.name, *(f"{share:.1%}" for grouping in order for _, share in by_grouping[grouping]))
