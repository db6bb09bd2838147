"""The search: every legal plan of a goal, bounds before exact estimates, the fastest that fit, and the front.

Of a goal's candidates each has an estimated time and a lower bound of its memory, both without building a ledger.
Candidates are estimated exactly in the order of their times, those left out that the bound rules out; the first that
fit are the fastest that fit. Points of the front follow, each with less memory than every faster one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from trainledger.answer.roofline import Roofline, Times
from trainledger.answer.search_answer import SOLVED, Answer, Counts, Found, How, Progress, by_time, key_of, lower
from trainledger.answer.search_bounds import Bounds, bounds_of
from trainledger.answer.search_exact import Exact, Job, confirmed, exact_of
from trainledger.answer.search_goal import Candidate, Goal
from trainledger.answer.search_kept import Kept
from trainledger.answer.search_recipes import recipes_of
from trainledger.answer.search_shape import Shape, shape_of
from trainledger.answer.search_space import Grid, base_plan, grid_of
from trainledger.facts.search_space import REACH
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan


class Search:
    """One search as it runs."""

    def __init__(self, goal: Goal, how: How) -> None:
        self.goal, self.how = goal, how
        self.base: Plan = base_plan(goal)
        self.shape: Shape = shape_of(model_of(self.base), self.base.keys())
        self.grid: Grid = grid_of(goal)
        given = (goal, self.base, self.shape, self.grid)
        kept = Kept(*given).left() if goal.megatron else None
        self.times: Times = Roofline(*given, kept.away if kept else None).times()
        self.bounds: Bounds = bounds_of(*given, kept)
        self.step = self.times.step
        left = np.nonzero(~self.bounds.out)[0]
        self.order = left[np.lexsort((self.bounds.wanted[left], self.step[left]))]
        self.tried: dict[int, Found] = {}
        self.best: Found | None = None

    def answer(self) -> Answer:
        """Run it."""
        self._tell()
        ranked = self._ranked()
        front = self._front(ranked)
        recipes = recipes_of(self.goal, self.grid, self._sought)
        if self.how.refine is not None:
            ranked = self._refined(ranked)
        counts = Counts(
            len(self.grid), self.grid.refused, int(self.bounds.never.sum()),
            int(self.bounds.out.sum()) - int(self.bounds.never.sum()), len(self.tried),
            len(self.tried) >= self.how.limit,
        )  # fmt: skip
        return Answer(self.goal, counts, tuple(ranked), tuple(front), recipes)

    def _ranked(self) -> list[Found]:
        """The fastest plans that fit, each by the whole estimate."""
        fitting: list[Found] = []
        waiting: list[Found] = []
        for found in self._estimated(self._worth(iter(self.order))):
            if found.exact.fits:
                waiting.append(found)
            if len(fitting) + len(waiting) >= self.how.top:
                fitting += self._confirmed(waiting)
                waiting = []
            if len(fitting) >= self.how.top:
                break
        fitting += self._confirmed(waiting)
        return sorted(fitting, key=by_time)[: self.how.top]

    def _confirmed(self, some: Sequence[Found]) -> list[Found]:
        """Those of some plans that fit by the whole estimate, too."""
        found = self._together([one.row for one in some], confirmed)
        fitting = [one for one in found if one.exact.fits]
        self.best = min((*fitting, *((self.best,) if self.best else ())), key=by_time, default=None)
        self._tell()
        return fitting

    def _worth(self, rows: Iterator[int]) -> Iterator[int]:
        """Rows without those that hold more than one that did not fit: the same plan with larger micro-batches."""
        for row in rows:
            if not any(self._below(row, other) for other in self._failed(row)):
                yield int(row)

    def _failed(self, row: int) -> Iterator[int]:
        mesh = self.grid.column("mesh")[row]
        return (at for at, one in self.tried.items() if not one.exact.fits and self.grid.column("mesh")[at] == mesh)

    def _below(self, row: int, other: int) -> bool:
        """Whether a plan that did not fit differs from this one in smaller micro-batches alone, with as many in
        flight."""
        same = all(self.grid.column(name)[row] == self.grid.column(name)[other] for name in ("policy", "way"))
        smaller = self.grid.column("micro_batch")[other] <= self.grid.column("micro_batch")[row]
        stages = self.grid.column("pp")[row] * self.grid.column("vpp")[row]
        return bool(same and smaller and (stages == 1 or self.grid.column("accumulation")[row] > stages + stages))

    def _estimated(self, rows: Iterable[int]) -> Iterator[Found]:
        """Exact estimates of rows, a few at a time, up to the limit."""
        waiting: list[int] = []
        for row in rows:
            if len(self.tried) + len(waiting) >= self.how.limit:
                break
            waiting.append(row)
            if len(waiting) >= self.how.together:
                yield from self._together(waiting)
                waiting = []
        yield from self._together(waiting)

    def _together(self, rows: Sequence[int], how: Callable[[Job], Exact] = exact_of) -> list[Found]:
        """Rows estimated, those aside that were or that the store has."""
        store = self.how.store if self.how.store is not None else {}
        whole = how is confirmed
        keys = {row: ("whole " if whole else "") + key_of(self.grid.candidate(row)) for row in rows}
        done = {row for row in rows if row in self.tried and (self.tried[row].exact.replayed or not whole)}
        new = [row for row in rows if row not in done and keys[row] not in store]
        for row, made in zip(
            new, self.how.run(how, [(self.goal, self.grid.candidate(row)) for row in new]), strict=True
        ):
            store[keys[row]] = made
        for row in rows:
            if row not in done:
                self.tried[row] = self._found(row, store[keys[row]])
        self._tell()
        return [self.tried[row] for row in rows]

    def _found(self, row: int, exact: Exact) -> Found:
        step = float(self.step[row])
        speed = self.goal.global_batch * self.goal.sequence / step / self.goal.devices
        faster = int(np.searchsorted(self.step[self.order], step))
        return Found(row, self.grid.candidate(row), self.times.of(row), step, speed, exact, faster, self._dp(row))

    def _dp(self, row: int) -> int:
        return self.goal.devices // self.grid.candidate(row).inner

    def _sought(self, rows: Sequence[int]) -> tuple[Found | None, int]:
        """Of these rows the fastest that fits (else the fastest), and how many candidates are not ruled out."""
        ordered = sorted(rows, key=lambda row: float(self.step[row]))
        best: Found | None = None
        for row in ordered:
            if self.bounds.never[row]:
                continue
            found = self._together([row])[0]
            best = best or found
            if found.exact.fits:
                return self._together([row], confirmed)[0], len(self.order)
        return best, len(self.order)

    def _front(self, ranked: Sequence[Found]) -> list[Found]:
        """Plans each of which holds less than every faster one, by a share worth showing."""
        fitting = sorted((one for one in self.tried.values() if one.exact.fits), key=by_time)
        front = lower(fitting)
        if not front:
            return []
        most = len(self.tried) + REACH.points
        for row in self.order:
            if row in self.tried or self.step[row] < front[0].step:
                continue
            least = min(one.exact.device.expected for one in front)
            if self.bounds.device[row] * self._ratio() >= least * (1 - REACH.front):
                continue
            if len(self.tried) >= min(self.how.limit, most):
                break
            found = self._together([int(row)])[0]
            if found.exact.fits:
                front = lower(sorted((*front, found), key=by_time))
        return front

    def _ratio(self) -> float:
        """Of plans estimated so far the middle of the device's bytes over their bound: what the bound may leave out."""
        ratios = [one.exact.device.expected / float(self.bounds.device[row]) for row, one in self.tried.items()]
        return float(np.median([one for one in ratios if one] or [1.0]))

    def _refined(self, ranked: list[Found]) -> list[Found]:
        """The ranking with plans whose stages a solver chose, where these fit and are faster."""
        assert self.how.refine is not None
        better, begun = list[Found](), dict[int, Found]()
        for one in sorted(self.tried.values(), key=by_time):
            if one.candidate.pp > 1 and one.candidate.vpp == 1 and one.exact.outcome is not None:
                begun.setdefault(int(self.grid.column("mesh")[one.row]), one)
        for one in list(begun.values())[: REACH.refine]:
            chosen = self.how.refine(self.goal, one.candidate)
            if chosen is not None:
                better.append(self._again(one, *chosen))
        return sorted((*ranked, *better), key=by_time)[: self.how.top]

    def _again(self, one: Found, chosen: Candidate, exact: Exact) -> Found:
        """A plan with other stages, timed anew by the same code."""
        mesh = replace(self.grid.meshes[int(self.grid.column("mesh")[one.row])], layout=chosen.layout)
        way = self.grid.ways[int(self.grid.column("way")[one.row])]
        count = int(self.grid.column("accumulation")[one.row])
        columns = np.array([[0], [chosen.micro_batch], [count], [0], [0]], dtype=np.int64)
        alone = Grid((mesh,), (chosen.policy,), (way,), columns, 0, self.grid.layers)
        away = Kept(self.goal, self.base, self.shape, alone).left().away
        times = Roofline(self.goal, self.base, self.shape, alone, away).times()
        step = float(times.step[0])
        speed = self.goal.global_batch * self.goal.sequence / step / self.goal.devices
        faster = int(np.searchsorted(self.step[self.order], step))
        return Found(one.row, chosen, times.of(0), step, speed, exact, faster, one.replicas, SOLVED)

    def _tell(self) -> None:
        if self.how.report is not None:
            self.how.report(Progress(len(self.grid), len(self.order), len(self.tried), self.best))


def search(goal: Goal, how: How | None = None) -> Answer:
    """The fastest plans of a goal that fit, with the front of memory against time. Raises InputError where no plan is
    legal."""
    return Search(goal, how or How()).answer()
