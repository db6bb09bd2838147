"""Model states: bytes per parameter by kind, shares, totals, and what a rank holds under each way of sharding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.answer.precision import warnings
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.units import BITS_PER_BYTE, LARGEST, SHOWN_UNITS
from trainledger.facts.dtypes import DType
from trainledger.facts.recipes import (
    OPTIMIZER_COPIES,
    RECIPES,
    SPLITS,
    Copy,
    Group,
    Grouping,
    Recipe,
    Split,
)

TOTAL_UNITS = ("GB", "GiB", "TB", "TiB")


@dataclass(frozen=True, slots=True)
class PerRank:
    """One strategy: bytes on the fullest rank, and the published formula of bytes per parameter over d ranks."""

    strategy: str
    title: str
    formula: str
    bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Bytes on disk, metadata left out: weights alone; weights and optimizer; those and an export of the weights."""

    weights_only: int
    full: int
    full_and_export: int


@dataclass(frozen=True, slots=True)
class RecipeStates:
    """One recipe's model states. `by_kind`: bytes per parameter; `shares`: fractions under each grouping."""

    name: str
    title: str
    bytes_per_parameter: float
    by_kind: tuple[tuple[Copy, float], ...]
    shares: tuple[tuple[Grouping, tuple[tuple[Group, float], ...]], ...]
    total_bytes: int
    totals: tuple[tuple[str, float], ...]
    per_rank: tuple[PerRank, ...]
    checkpoint: Checkpoint
    warnings: tuple[str, ...]
    source: str

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain JSON values: bytes, bytes per parameter, fractions."""
        return {
            "name": self.name,
            "title": self.title,
            "bytes_per_parameter": self.bytes_per_parameter,
            "by_kind": {copy.value: size for copy, size in self.by_kind},
            "shares": {
                grouping.value: {group.value: share for group, share in parts} for grouping, parts in self.shares
            },
            "total_bytes": self.total_bytes,
            "totals": dict(self.totals),
            "per_rank": {
                row.strategy: {"bytes": row.bytes, "formula": row.formula, "source": row.source}
                for row in self.per_rank
            },
            "checkpoint": {
                "weights_only": self.checkpoint.weights_only,
                "full": self.checkpoint.full,
                "full_and_export": self.checkpoint.full_and_export,
            },
            "warnings": list(self.warnings),
            "source": self.source,
        }


@dataclass(frozen=True, slots=True)
class States:
    """The answer of `states`: one entry per recipe asked for, over `ranks` data-parallel ranks."""

    parameters: int
    ranks: int
    recipes: tuple[RecipeStates, ...]

    def to_dict(self) -> dict[str, Any]:
        """`{parameters, ranks, recipes[]}` as plain JSON values."""
        return {
            "parameters": self.parameters,
            "ranks": self.ranks,
            "recipes": [recipe.to_dict() for recipe in self.recipes],
        }


def states(parameters: int, names: tuple[str, ...] = (), ranks: int = 1) -> States:
    """Model states of that many unique parameters under the recipes named (all where none is).

    `ranks`: data-parallel ranks that each hold, or divide, the whole model. Raises InputError with every problem: an
    unknown recipe, fewer than one parameter or rank, or a size out of range. Sources: the rows of `facts.recipes`.
    """
    problems = problems_of({"params": parameters, "ranks": ranks}, names)
    if problems:
        raise InputError(problems)
    rows = [RECIPES[name] for name in dict.fromkeys(names)] if names else list(RECIPES.values())
    return States(parameters, ranks, tuple(_answer(row, parameters, ranks) for row in rows))


def problems_of(counts: dict[str, int], names: tuple[str, ...]) -> tuple[Problem, ...]:
    """What is wrong with these counts, by key, and these names of recipes."""
    problems = [
        Problem(key, f"found {count}", "an integer of at least 1 is needed", "Write for example 7B, 8e9 or 64.")
        for key, count in counts.items()
        if not 1 <= count < LARGEST
    ]
    for name in names:
        if name not in RECIPES:
            near = nearest(name, RECIPES)
            fix = f"Did you mean {near}?" if near else ""
            problems.append(Problem("recipe", f"found {name!r}", f"one of {', '.join(RECIPES)} is needed", fix))
    return tuple(problems)


def bytes_per_parameter(recipe: Recipe, copies: tuple[Copy, ...] | None = None) -> float:
    """Bytes that each parameter costs in these copies (all of the recipe's where None). Whole numbers are ints."""
    bits = sum(dtype.bits for copy, dtype in recipe.copies if copies is None or copy in copies)
    whole, rest = divmod(bits, BITS_PER_BYTE)
    return bits / BITS_PER_BYTE if rest else whole


def rank_bytes(recipe: Recipe, split: Split, parameters: int, ranks: int) -> int:
    """Bytes of model states on the fullest of `ranks` data-parallel ranks. Divided copies are rounded up to elements.

    What is gathered for a moment, padding and buckets are not in it: it is what the rank holds between steps.
    """
    share = -(-parameters // ranks)
    return sum(dtype.bytes_of(share if copy in split.divided else parameters) for copy, dtype in recipe.copies)


def rank_formula(recipe: Recipe, split: Split) -> str:
    """`6 + 12/d`: bytes per parameter on one of d ranks, as the papers print it (the mean over the ranks)."""
    kept = bytes_per_parameter(recipe, tuple(copy for copy, _ in recipe.copies if copy not in split.divided))
    divided = bytes_per_parameter(recipe, split.divided)
    parts = [f"{kept:g}"] if kept or not divided else []
    return " + ".join([*parts, f"{divided:g}/d"] if divided else parts)


def shares(recipe: Recipe, grouping: Grouping) -> tuple[tuple[Group, float], ...]:
    """The three groups' fractions of the model states, with the master weights counted once, where asked."""
    master = Group.WEIGHTS if grouping is Grouping.WITH_WEIGHTS else Group.OPTIMIZER
    total = bytes_per_parameter(recipe)
    members = {group: tuple(copy for copy, _ in recipe.copies if _group(copy, master) is group) for group in Group}
    return tuple((group, bytes_per_parameter(recipe, copies) / total) for group, copies in members.items())


def checkpoint_bytes(recipe: Recipe, parameters: int) -> Checkpoint:
    """Disk bytes, metadata left out: P*bp; P*(bp + bo), master weights among the optimizer's; both together."""
    weights = _sum(recipe, (Copy.WEIGHTS,), parameters)
    full = weights + _sum(recipe, (Copy.MASTER, *OPTIMIZER_COPIES), parameters)
    return Checkpoint(weights, full, weights + full)


def adapter_states(base: int, base_dtype: DType, adapter: int, recipe: Recipe) -> int:
    """Bytes of N frozen base parameters and N_L trained adapter parameters: N*b + N_L*(bp + bg + bo).

    Scales of a quantised base are not in it. Activations follow the base model whatever the adapter's size.
    """
    return base_dtype.bytes_of(base) + _sum(recipe, tuple(Copy), adapter)


def _sum(recipe: Recipe, copies: tuple[Copy, ...], parameters: int) -> int:
    return sum(dtype.bytes_of(parameters) for copy, dtype in recipe.copies if copy in copies)


def _group(copy: Copy, master: Group) -> Group:
    if copy is Copy.MASTER:
        return master
    if copy is Copy.WEIGHTS:
        return Group.WEIGHTS
    return Group.OPTIMIZER if copy in OPTIMIZER_COPIES else Group.GRADIENTS


def _answer(recipe: Recipe, parameters: int, ranks: int) -> RecipeStates:
    total = _sum(recipe, tuple(Copy), parameters)
    trained = recipe.dtype(Copy.GRADIENTS) is not None
    weights = recipe.dtype(Copy.WEIGHTS)
    doubts = warnings(weights, recipe.dtype(Copy.MASTER)) if trained and weights is not None else ()
    return RecipeStates(
        name=recipe.name,
        title=recipe.title,
        bytes_per_parameter=bytes_per_parameter(recipe),
        by_kind=tuple((copy, bytes_per_parameter(recipe, (copy,))) for copy, _ in recipe.copies),
        shares=tuple((grouping, shares(recipe, grouping)) for grouping in Grouping),
        total_bytes=total,
        totals=tuple((unit, total / SHOWN_UNITS[unit]) for unit in TOTAL_UNITS),
        per_rank=tuple(
            PerRank(
                split.name,
                split.title,
                rank_formula(recipe, split),
                rank_bytes(recipe, split, parameters, ranks),
                str(split.source),
            )
            for split in SPLITS.values()
        ),
        checkpoint=checkpoint_bytes(recipe, parameters),
        warnings=tuple(doubt.reason for doubt in doubts),
        source=str(recipe.source),
    )
