"""Uneven stages and what runs again, as a small integer program: costs of layers, stages and ways, and its solution.

The slowest stage's time for a micro-batch is made as short as can be within each stage's memory. Layers stay in their
order; one way to keep activations holds for all stages, as the framework has it, and where that runs the first layers
of every stage again, how many these are is chosen too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to keep activations, by kind of layer: bytes that a micro-batch in flight leaves, seconds forward and
    backward. `again`, `longer`: of a layer among the first ones that run again, where the way has such."""

    name: str
    kept: tuple[float, ...]
    seconds: tuple[float, ...]
    again: tuple[float, ...] = ()
    longer: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """`layers`: of each kind, in their order; `states`: bytes of one's model states; `flight`: micro-batches in flight
    by stage; `fixed`: bytes of a stage besides; `ends`: seconds of a stage besides; `limit`: bytes of a stage."""

    layers: tuple[int, ...]
    states: tuple[float, ...]
    flight: tuple[int, ...]
    fixed: tuple[float, ...]
    ends: tuple[float, ...]
    limit: float
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """Layers of each stage by kind, the way, how many of a stage's first layers run again, and the slowest stage's
    seconds."""

    counts: tuple[tuple[int, ...], ...]
    choice: int
    first: int
    seconds: float

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of each stage."""
        return tuple(map(sum, self.counts))


def cost(problem: Problem, counts: Sequence[Sequence[int]], choice: int, first: int) -> tuple[float, bool]:
    """Seconds of the slowest stage, and whether every stage is within its bytes."""
    way, most, fits = problem.choices[choice], 0.0, True
    for stage, held in enumerate(counts):
        size, time = problem.fixed[stage], problem.ends[stage]
        left = first if way.again else 0
        for kind, count in enumerate(held):
            over = min(left, count)
            left -= over
            size += count * (problem.states[kind] + problem.flight[stage] * way.kept[kind])
            time += count * way.seconds[kind]
            if over:
                size -= over * problem.flight[stage] * (way.kept[kind] - way.again[kind])
                time += over * (way.longer[kind] - way.seconds[kind])
        most, fits = max(most, time), fits and size <= problem.limit
    return most, fits


def solve(problem: Problem) -> Solution | None:
    """The best split by HiGHS; None where none is within the bytes. Raises ImportError without highspy."""
    from highspy import Highs

    class Quiet(Highs):  # type: ignore[misc]
        """Whose maker says nothing: the first thing that it would print is who it is."""

        def enableCallbacks(self) -> None:  # noqa: N802
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    found: list[Solution] = []
    for choice in range(len(problem.choices)):
        one = _Program(Quiet(), problem, choice).solved()
        if one is not None:
            found.append(one)
    return min(found, key=lambda one: one.seconds, default=None)


class _Program:
    """The integer program of one way: layers of each kind on each stage, those that run again, the slowest stage."""

    def __init__(self, model: Any, problem: Problem, choice: int) -> None:
        self.model, self.problem, self.choice = model, problem, choice
        self.way = problem.choices[choice]
        stages, total = range(len(problem.flight)), sum(problem.layers)
        self.held = [[model.addIntegral(lb=0, ub=count) for count in problem.layers] for _ in stages]
        self.time = model.addVariable(lb=0)
        self.first = model.addIntegral(lb=0, ub=total) if self.way.again else None
        self.over = (
            [[model.addIntegral(lb=0, ub=count) for count in problem.layers] for _ in stages] if self.way.again else []
        )
        for kind, count in enumerate(problem.layers):
            model.addConstr(sum(self.held[stage][kind] for stage in stages) == count)
        for stage in stages[1:-1]:
            model.addConstr(sum(self.held[stage]) >= 1)
        self._in_order()
        for stage in stages:
            self._stage(stage)

    def _in_order(self) -> None:
        """A kind begins on a stage only where all layers of the kind before it lie on this stage or earlier ones."""
        model, stages = self.model, range(len(self.held))
        for kind in range(1, len(self.problem.layers)):
            count, before = self.problem.layers[kind], self.problem.layers[kind - 1]
            for stage in stages:
                begun = model.addBinary()
                model.addConstr(self.held[stage][kind] <= begun * count)
                model.addConstr(sum(self.held[at][kind - 1] for at in range(stage + 1)) >= begun * before)

    def _stage(self, stage: int) -> None:
        """A stage's bytes and seconds."""
        problem, way, held = self.problem, self.way, self.held[stage]
        flight = problem.flight[stage]
        size = sum(held[kind] * (problem.states[kind] + flight * way.kept[kind]) for kind in range(len(held)))
        time = sum(held[kind] * way.seconds[kind] for kind in range(len(held)))
        if self.first is not None:
            over = self.over[stage]
            self._first_layers(stage)
            size = size - sum(over[kind] * (flight * (way.kept[kind] - way.again[kind])) for kind in range(len(held)))
            time = time + sum(over[kind] * (way.longer[kind] - way.seconds[kind]) for kind in range(len(held)))
        self.model.addConstr(size <= problem.limit - problem.fixed[stage])
        self.model.addConstr(self.time >= time + problem.ends[stage])

    def _first_layers(self, stage: int) -> None:
        """Of a stage's layers in their order the first ones run again, as many as are chosen for all: of each kind the
        smaller of its layers and of what is left."""
        model, total = self.model, sum(self.problem.layers)
        left = self.first
        for kind, count in enumerate(self.problem.layers):
            over, held = self.over[stage][kind], self.held[stage][kind]
            short = model.addBinary()  # whether fewer are left than there are layers
            model.addConstr(over <= held)
            model.addConstr(over <= left)
            model.addConstr(over >= held - short * count)
            model.addConstr(over >= left - (1 - short) * total)
            left = left - over

    def solved(self) -> Solution | None:
        """The solution; None where there is none."""
        from highspy import HighsModelStatus

        self.model.minimize(self.time)
        if self.model.getModelStatus() != HighsModelStatus.kOptimal:
            return None
        counts = tuple(tuple(round(self.model.val(one)) for one in held) for held in self.held)
        first = round(self.model.val(self.first)) if self.first is not None else 0
        return Solution(counts, self.choice, first, cost(self.problem, counts, self.choice, first)[0])
