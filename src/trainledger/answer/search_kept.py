"""What a micro-batch leaves behind for its backward under Megatron-Core, layer by layer, from the ledger's own walk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from trainledger.answer.search_goal import Goal, hosting
from trainledger.answer.search_shape import Shape
from trainledger.answer.search_space import Floats, Grid, Ints, copied
from trainledger.answer.search_stages import Stages
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.megatron_offload import OPTION
from trainledger.facts.search_space import Policy
from trainledger.ledger.book import Book
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_engine import weight_copies
from trainledger.ledger.mega_order import order_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.mega_states import Kept as States
from trainledger.ledger.megatron import job_of
from trainledger.lines.actions import Flight, flights
from trainledger.lines.stream import Segment
from trainledger.model.build import model_of
from trainledger.plan.running import Recompute
from trainledger.plan.schema import Plan

MORE = len(("one sequence", "one more"))


@dataclass(frozen=True, slots=True)
class Left:
    """What is known of single layers, arrays (candidates, kinds), bytes at least. `plain`, `again`: what one sequence
    leaves of a layer as it is, and of one that runs again; `copies`: of its weights in 8 bits; `working`: (candidates),
    what the last layer's forward, or its backward, takes on top; `away`: what goes to the host of what one sequence
    would leave."""

    plain: Floats
    again: Floats
    copies: Floats
    working: Floats
    away: Floats


Run = tuple[Recompute, tuple[str, ...]]  # what runs again, and modules whose saved tensors go to the host
Layers = tuple[tuple[float, ...], tuple[float, ...], float]


@dataclass(frozen=True, slots=True)
class Walked:
    """The same of one way to spread layers, with `working` of one sequence and of one more."""

    plain: tuple[float, ...]
    again: tuple[float, ...]
    copies: tuple[float, ...]
    away: tuple[float, ...]
    working: float
    more: float


class Kept:
    """What micro-batches leave behind under Megatron-Core, for every candidate of a grid."""

    def __init__(self, goal: Goal, base: Plan, shape: Shape, grid: Grid) -> None:
        self.goal, self.base, self.shape, self.grid = goal, base, shape, grid
        self._seen: dict[tuple[object, ...], Layers] = {}

    def left(self) -> Left:
        """By candidate and kind; layers are walked once for every way in which candidates spread them."""
        names = ("tp", "cp", "etp", "policy")
        spread = (self.grid.column("ep") > 1).astype(np.int64)
        columns = np.stack([*(self.grid.column(name) for name in names), spread])
        keys, at = np.unique(columns, axis=1, return_inverse=True)
        made = [self._walked(*map(int, key)) for key in keys.T]
        plain, again, copies, away = (
            np.array([getattr(one, name) for one in made]) for name in ("plain", "again", "copies", "away")
        )
        working, more = (np.array([getattr(one, name) for one in made])[at] for name in ("working", "more"))
        further = np.maximum(self.grid.column("micro_batch") - 1, 0)
        return Left(plain[at], again[at], copies[at], working + further * more, away[at])

    def _walked(self, tp: int, cp: int, etp: int, policy: int, spread: int) -> Walked:
        """The layers of each kind, walked."""
        meshes = [one for one in self.grid.meshes if (one.tp, one.cp, one.etp) == (tp, cp, etp)]
        ep = max(one.ep for one in meshes) if spread else 1
        way: dict[str, object] = {
            "tp": tp,
            "cp": cp,
            "sp": tp > 1,
            "ep": ep,
            "etp": etp if ep > 1 else None,
            "world": tp * cp * ep,
        }
        chosen = self.grid.policies[policy]
        runs: list[Run] = [(_as_is(chosen), chosen.hosted)]
        if chosen.again == ("",):
            runs.append((Recompute(kind="full", method="uniform", num_layers=1), ()))
        one = [self._one(way, run, 1) for run in runs]
        two = [self._one(way, run, MORE) for run in runs]
        start = 0 if chosen.block or len(runs) == 1 else -1
        first, second = (min(some[start:], key=lambda each: each[-1])[-1] for some in (one, two))
        if chosen.hosted:
            return self._hosted(way, runs[0], one[0])
        return Walked(one[0][0], one[-1][0], one[0][1], tuple(0.0 for _ in one[0][0]), first, max(second - first, 0.0))

    def _hosted(self, way: dict[str, object], run: Run, one: Layers) -> Walked:
        """A way that sends tensors to the host, from a size on: of the largest micro-batches most go, so that their
        sequences leave least. What passes take on top need not grow with them, and is left out."""
        most = max(self.goal.space.micro_batches)
        left = tuple(size / most for size in self._one(way, run, most)[0])
        whole = self._one(way, (run[0], ()), 1)[0]
        away = tuple(max(size - rest, 0.0) for size, rest in zip(whole, left, strict=True))
        return Walked(left, left, one[1], away, 0.0, 0.0)

    def _one(self, way: dict[str, object], run: Run, micro: int) -> Layers:
        """The layers of one way to spread and to run them: walked once for all policies that have it."""
        recompute, hosted = run
        key = (*way.values(), recompute.model_dump_json(), hosted, micro)
        if key not in self._seen:
            plan = copied(self.base, way, {"micro_batch": micro, "sequence": self.goal.sequence})
            options = {**plan.stack.options, **hosting(hosted)}
            stack = plan.stack.model_copy(update={"recompute": recompute, "options": options})
            self._seen[key] = self._layers(plan.model_copy(update={"stack": stack}), recompute)
        return self._seen[key]

    def _layers(self, plan: Plan, recompute: Recompute) -> Layers:
        """By kind what is left and the copies of weights; the least that a layer's passes take on top."""
        job = job_of(plan, model_of(plan), self.goal.device.architecture)
        walks = Walks(job, Leaves(False, States.of(plan).weights, {}, copied=True), recompute)
        left, copies, working = list[float](), list[float](), list[float]()
        for kind in self.shape.kinds:
            chunk = Chunk((), False, False, 1) if kind.further else Chunk(kind.layers[-1:], False, False)
            copies.append(float(sum(job.book.lines[one].unit * times for one, times in weight_copies(job, (chunk,)))))
            if kind.further:
                left.append(0.0)
                continue
            made = walks.run(chunk)
            size, count, most = _over(job.book, made.forward)
            if plan.stack.options.get(OPTION):  # the last layer's tensors are still on their way
                size = (
                    _over(job.book, walks.run(replace(chunk, layers=(*chunk.layers, *chunk.layers))).forward)[0] - size
                )
            left.append(float(max(size - max(count, 0) * CUDA.granule, 0)))
            working.append(float(max(most - size, _over(job.book, made.backward)[-1])))
        return tuple(left), tuple(copies), min(working)


def _as_is(policy: Policy) -> Recompute:
    """How the layers run that a policy does not run again whole."""
    return Recompute(kind="none") if policy.again == ("",) else Recompute.model_validate(dict(policy.recompute))


def _over(book: Book, segments: Iterable[Segment]) -> tuple[int, int, int]:
    """Bytes and tensors that segments leave, and the most bytes that they hold, on top of what they begin with; none of
    those that are assumed."""
    size = count = most = 0
    for segment in segments:
        for _ in range(segment.repeat):
            for event in segment.events:
                sign, line = 1 if event > 0 else -1, book.lines[abs(event) - 1]
                if line.basis is Basis.ASSUMED:
                    continue
                size, count = size + sign * line.unit, count + sign
                most = max(most, size)
    return size, count, most


class InFlight:
    """Layers in flight by kind on some stages of every candidate."""

    def __init__(self, base: Plan, stages: Stages, grid: Grid) -> None:
        self.base, self.stages, self.grid = base, stages, grid
        self._seen: dict[tuple[int, int, int, int], tuple[int, ...]] = {}

    def at(self, stage: int) -> Floats:
        """(candidates, kinds + 2): layers in flight by kind, passes of the output layer, and chunks in flight, on a
        stage (-1: the last one; one that there is not stands for the first)."""
        keys, at = np.unique(np.stack([self.stages.row, self.grid.column("accumulation")]), axis=1, return_inverse=True)
        made: Ints = np.array([self._held(int(row), int(count), stage) for row, count in keys.T], dtype=np.int64)
        return made[at].astype(np.float64)

    def _held(self, row: int, count: int, stage: int) -> tuple[int, ...]:
        pp, vpp, _ = self.stages.keys[row]
        rank = pp - 1 if stage < 0 else stage if stage < pp else 0
        flying = self.flying(pp, vpp, count, rank)
        chunks = self.stages.splits[row].ranks[rank]
        sums = [
            sum(times * held[kind] for times, held in zip(flying, chunks, strict=True))
            for kind in range(len(chunks[0]))
        ]
        return (*sums, sum(flying))

    def flying(self, pp: int, vpp: int, count: int, rank: int) -> tuple[int, ...]:
        """By chunk, micro-batches of a stage in flight when most are."""
        if pp == 1:
            return (1,)
        key = (pp, vpp, count, rank)
        if key not in self._seen:
            schedule = "interleaved" if vpp > 1 else "1f1b"
            plan = copied(self.base, {"pp": pp, "vpp": vpp, "schedule": schedule}, {"accumulation": count})
            most: Flight = max((one for _, one in flights(order_of(plan, rank))), key=lambda one: sum(one.flying))
            self._seen[key] = most.flying
        return self._seen[key]
