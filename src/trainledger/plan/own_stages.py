"""How frameworks other than Megatron-Core spread a model's layers over the stages of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainledger.base.demands import Demand, problems_of
from trainledger.base.problems import Problem
from trainledger.facts.pipelines import LIGHT_ENDS, TITAN_STAGES
from trainledger.facts.torchtitan_days import day_of
from trainledger.plan.schema import Plan

LESS_FIRST = "pipeline_parallel_first_stage_less_layers"
LESS_LAST = "pipeline_parallel_last_stage_less_layers"
POINTS = "pipeline_parallel_split_points"
PARTS = "module_fqns_per_model_part"
TITAN_KEYS = (LESS_FIRST, LESS_LAST, POINTS, PARTS)
_PP, _VPP, _OPTIONS = "parallel.pp", "parallel.vpp", "parallel.options"
_LAYER = re.compile(r"layers\.(\d{1,4})")
FIRST_END, LAST_END = 0, -1


@dataclass(frozen=True, slots=True)
class Weighted:
    """Embedding and head count as so many layers; the first stages take what does not divide (torchtitan)."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LightEnds:
    """The inner stages, in their order, take what does not divide, then the stage `rest` (0 or -1) at one end."""

    rest: int


@dataclass(frozen=True, slots=True)
class Named:
    """Layers of every stage as the plan names them under the option `option`; None where it names no such stages."""

    option: str
    counts: tuple[int, ...] | None


Own = Weighted | LightEnds | Named


def own_stages(plan: Plan, layers: int) -> Own | None:
    """How the plan's framework spreads `layers` layers; None where it does as Megatron-Core does."""
    framework, options = plan.stack.framework, plan.parallel.options
    if framework == LIGHT_ENDS.framework:
        return LightEnds(FIRST_END)
    if framework != TITAN_STAGES.framework:
        return None
    for option, read in ((PARTS, _parts), (POINTS, _points)):
        if option in options and plan.parallel.pp > 1:
            return Named(option, read(options[option], layers))
    day = day_of(plan.stack.versions.get(framework, ""))
    if LESS_FIRST in options or LESS_LAST in options or day >= TITAN_STAGES.since:
        return Weighted(options.get(LESS_FIRST, TITAN_STAGES.embedding), options.get(LESS_LAST, TITAN_STAGES.head))
    return LightEnds(LAST_END)


def stages_named(plan: Plan) -> int | None:
    """How many stages a plan of torchtitan names; None where it names none."""
    options = plan.parallel.options
    if plan.stack.framework != TITAN_STAGES.framework:
        return None
    if PARTS in options:
        return len(options[PARTS]) if isinstance(options[PARTS], list) else None
    return len(options[POINTS]) + 1 if POINTS in options else None


def _points(points: Sequence[str], layers: int) -> tuple[int, ...] | None:
    """Layers between the points, each the first layer of a stage but the first (`layers.8`)."""
    found = [int(match[1]) for match in map(_LAYER.fullmatch, points) if match]
    ends = [0, *found, layers]
    if len(found) != len(points) or ends != sorted(ends):
        return None
    return tuple(after - before for before, after in pairwise(ends))


def _parts(parts: Any, layers: int) -> tuple[int, ...] | None:
    """Layers of every list of modules, all in their order; embedding is in the first, norm and head are in the last."""
    if not isinstance(parts, list) or len(parts) < len((FIRST_END, LAST_END)):
        return None
    if not all(isinstance(one, list) for one in parts):
        return None
    names = [[f"{name}" for name in one] for one in parts]
    held = [[int(match[1]) for match in map(_LAYER.fullmatch, one) if match] for one in names]
    first, *between, last = [{name for name in one if not _LAYER.fullmatch(name)} for one in names]
    ends = first == set(TITAN_STAGES.before) and last in map(set, TITAN_STAGES.behind)
    ordered = [at for one in held for at in one] == list(range(layers))
    return tuple(map(len, held)) if ends and ordered and not any(between) else None


def own_counts(own: Own, layers: int, count: int) -> list[int]:
    """Layers of each of `count` stages, in the order of the model."""
    if isinstance(own, Named):
        return list(own.counts or ())
    if isinstance(own, Weighted):
        if count == 1:
            return [layers]
        total = layers + own.first + own.last
        counts = [total // count + (at < total % count) for at in range(count)]
        return [counts[0] - own.first, *counts[1:-1], counts[-1] - own.last]
    fewest, rest = divmod(layers, count)
    inner = min(rest, max(count - len((FIRST_END, LAST_END)), 0))
    counts = [fewest + (1 <= at <= inner) for at in range(count)]
    counts[own.rest] += rest - inner
    return counts


def own_problems(own: Own, layers: int, ranks: int, chunks: int) -> tuple[Problem, ...]:
    """What the framework refuses, each with the nearest value that can be."""
    if isinstance(own, Named):
        return tuple(_named(own, layers, ranks, chunks))
    if isinstance(own, Weighted):
        return problems_of(_weighted(own, layers, ranks, chunks))
    if own.rest == FIRST_END:
        return ()
    return problems_of(_enough(layers, ranks, chunks))


def _named(own: Named, layers: int, ranks: int, chunks: int) -> Iterator[Problem]:
    path = f"{_OPTIONS}.{own.option}"
    if own.counts is None:
        need = f"stages that hold layers 0 to {layers - 1} in their order are counted"
        more = ", embedding in the first, norm and head in the last" if own.option == PARTS else " (layers.N, rising)"
        yield Problem(path, f"no such split of {layers} layers", f"{need}{more}")
    elif len(own.counts) != ranks * chunks:
        found, fix = f"found {len(own.counts)} stages over pp {ranks} with vpp {chunks}", ""
        if len(own.counts) % ranks == 0:
            fix = f"Set {_VPP} to {len(own.counts) // ranks}."
        yield Problem(path, found, f"{ranks * chunks} are needed", fix)


def _axis(ranks: int, chunks: int) -> tuple[str, int, int]:
    """The key to change, its value, and the stages for each of it."""
    return (_PP, ranks, chunks) if chunks == 1 else (_VPP, chunks, ranks)


def _weighted(own: Weighted, layers: int, ranks: int, chunks: int) -> Iterator[Demand]:
    """torchtitan: no stage is empty, and neither end counts as more layers than the smallest stage has."""
    if ranks * chunks == 1:
        return
    total, least = layers + own.first + own.last, max(own.first, own.last, 1)
    path, value, per = _axis(ranks, chunks)
    found = f"{ranks * chunks} stages for {layers} layers, embedding as {own.first}, head as {own.last}"
    yield Demand(path, value, found, f"stages of at least {least} are needed", lambda n: total // (n * per) >= least)


def _enough(layers: int, ranks: int, chunks: int) -> Iterator[Demand]:
    path, value, per = _axis(ranks, chunks)
    found = f"{ranks * chunks} stages for {layers} layers"
    yield Demand(path, value, found, "a layer for each is needed", lambda n: n * per <= layers)
