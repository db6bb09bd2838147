"""What a rank holds at least, for every candidate at once: never more than the exact estimate's low end.

States are counted exactly but for the alignment of what each rank owns. Of activations Megatron-Core's ledger is asked:
one layer of each kind is walked for each way in which it can be spread, and what a micro-batch leaves behind is
multiplied by those in flight. Elsewhere a layer keeps its input at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainledger.answer.bands import NOTHING, Band, Outside, replayed_over
from trainledger.answer.estimate import architecture_of
from trainledger.answer.search_goal import Candidate, Goal, plan_of
from trainledger.answer.search_kept import InFlight, Kept, Left
from trainledger.answer.search_probes import Probes
from trainledger.answer.search_shape import Shape, held, stacked
from trainledger.answer.search_space import Floats, Grid, Way, copied
from trainledger.answer.search_stages import Stages
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import BF16, DTYPES, FP8, FP32, INT16
from trainledger.facts.optimizer_bytes import state_bytes
from trainledger.facts.optimizer_kinds import Place
from trainledger.facts.optimizer_kinds import Shape as Form
from trainledger.facts.overheads import communicators
from trainledger.facts.search_space import NONE, REACH, SPREADS
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.ledger.mega_aware import stepped_of
from trainledger.ledger.rank import updates_of
from trainledger.ledger.step import Updates
from trainledger.lines.param_states import Stepped
from trainledger.lines.parts import Parts
from trainledger.model.build import model_of
from trainledger.model.program import Weight
from trainledger.plan.schema import Plan

WIDE = BF16.bytes_of(1)
Pair = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes of every candidate: live tensors at least; the device's at least; and what would have to fit for the
    verdict `fits`, at least. `never`: which of them do not fit in any case; `out`: which can not be said to fit."""

    allocated: Floats
    device: Floats
    wanted: Floats
    never: np.ndarray[tuple[int], np.dtype[np.bool_]]
    out: np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Each:
    """Bytes of one trained element: weight, that of a weight outside layers, gradient, what the optimizer keeps of it,
    and the gradient in fp32 that it reads at its step where the kept one is not."""

    weights: float
    outside: float
    gradients: float
    states: float
    wide: float = 0.0


def bounds_of(goal: Goal, base: Plan, shape: Shape, grid: Grid, left: Left | None = None) -> Bounds:
    """The bounds of every candidate of a grid. `left`: what Megatron-Core's layers leave, where it is known already."""
    usable, mesh = goal.device.usable_bytes, grid.column("mesh")
    own = Outside.of(architecture_of(goal.device), base, NOTHING).above(Band(0, 0, 0))  # of one rank: no communicators
    counts = [communicators(goal.devices, one.groups) for one in grid.meshes]
    low, high = (np.array([getattr(one, end) for one in counts])[mesh] for end in ("low", "high"))
    over = [replayed_over(copied(base, {"strategy": one.strategy}, {})) for one in grid.ways]
    least, most = (
        np.array(found)[grid.column("way")]
        for found in ([one.allocated.low for one in over], [one.reserved.high for one in over])
    )
    found = Lows(goal, base, shape, grid).allocated(left)
    device, wanted = own.low + low + found * least, own.high + high + found * most
    return Bounds(found, device, wanted, device > usable, wanted > usable)


class Lows:
    """Live bytes of every candidate at some moment of its fullest stages: at least."""

    def __init__(self, goal: Goal, base: Plan, shape: Shape, grid: Grid) -> None:
        self.goal, self.base, self.shape, self.grid = goal, base, shape, grid
        self.stages = Stages(base, grid, shape)
        self.flight = InFlight(base, self.stages, grid)
        self.each = [each_of(base if goal.megatron else _alone(goal, one)) for one in grid.ways]
        self.tp, self.cp, self.pp, self.ep, self.etp = (
            grid.column(name).astype(np.float64) for name in ("tp", "cp", "pp", "ep", "etp")
        )
        way = grid.column("way")
        ranks = goal.devices / (self.tp * self.pp)
        shard = np.array([one.shard for one in grid.ways], dtype=np.float64)[way]
        self.shard: Floats = np.where(shard > 0, shard, ranks)
        self.apart: Floats = np.maximum(goal.devices / (self.pp * self.etp * self.ep), 1.0)
        self.spreads = [SPREADS[one.strategy] for one in grid.ways]
        combined = np.stack([self.tp, self.etp, self.ep]).astype(np.int64)
        self._parts, self._at = np.unique(combined, axis=1, return_inverse=True)
        self.tokens: Floats = grid.column("micro_batch") * goal.sequence / self.cp

    def allocated(self, left: Left | None = None) -> Floats:
        """The largest of the bounds of single stages."""
        elements = [self._elements(kind.weights) for kind in self.shape.kinds]
        best = np.zeros(len(self.grid))
        if not self.goal.megatron:
            return self._sharded(elements)
        kept = left or Kept(self.goal, self.base, self.shape, self.grid).left()
        for stage in (0, 1, -1):
            best = np.maximum(best, self._stage(stage, elements, kept))
        return best

    def states(self, kept: Left) -> list[Floats]:
        """Bytes of model states of one layer of each kind, 8-bit copies of its weights among them."""
        found = []
        for at, kind in enumerate(self.shape.kinds):
            dense, routed = self._elements(kind.weights)
            parts = [self._part(name, dense, routed) for name in ("weights", "gradients", "states")]
            found.append(np.sum([*parts, kept.copies[:, at]], axis=0))
        return found

    def _stage(self, stage: int, elements: list[Pair], kept: Left) -> Floats:
        dense, routed = self._layers(stage, elements)
        ends = self._ends(stage)
        held_, flight = self.stages.at(stage), self.flight.at(stage)
        activations, working = self._activations(flight, kept), kept.working
        if stage < 0:
            logits = self.tokens * self.shape.vocab / self.tp * WIDE  # while the only chunk's last forward is kept
            working = np.maximum(working, np.where(self.grid.column("vpp") == 1, logits, 0.0))
        states = self._part("states", dense + ends, routed) * REACH.slack
        gradients = self._part("gradients", dense + ends, routed)
        weights = self._part("weights", dense, routed) + self._part("outside", ends, np.zeros_like(ends))
        copies = np.sum(held_[:, : len(elements)] * kept.copies, axis=1)  # buffers of weights and gradients stay
        wide = self._part("wide", dense + ends, routed) * REACH.slack
        found: Floats = weights + gradients + states + copies + np.maximum(activations + working, wide)
        return found

    def _sharded(self, elements: list[Pair]) -> Floats:
        """Of frameworks other than Megatron-Core: states, and what the ledger of a few layers holds besides."""
        parts = Probes(self.goal, model_of(self.base), self.grid).parts()
        found = np.zeros(len(self.grid))
        for stage in (0, -1):
            dense, routed = self._layers(stage, elements)
            dense = dense + self._ends(stage)
            states, gradients = (self._part(name, dense, routed) for name in ("states", "gradients"))
            besides = self._besides(stage, parts) * REACH.slack
            gathers = np.array([one.gathered for one in self.spreads])[self.grid.column("way")] & (self.pp > 1)
            whole = np.where(gathers, dense + routed, 0.0)  # beside a pipeline weights stay gathered, gradients whole
            reduced = DTYPES[self.base.precision.reduce or self.base.precision.gradients].bytes_of(1) * _whole(
                self.base
            )
            most = np.maximum(gradients, np.maximum(besides, whole * reduced)) + whole * WIDE + self._received()
            found = np.maximum(found, self._part("weights", dense, routed) + states * REACH.slack + most)
        return found

    def _besides(self, stage: int, parts: tuple[Floats, Floats, Floats, Floats]) -> Floats:
        """Bytes besides states: without a pipeline as the probes say; on the first stage of one what is in flight, on
        the last what one micro-batch leaves and its loss."""
        fixed, layer, sequence, both = parts
        micro, kinds = self.grid.column("micro_batch"), len(self.shape.kinds)
        if stage == 0:
            alone = fixed + layer * self.grid.layers + (sequence + both * self.grid.layers) * micro
            layers = np.sum(self.flight.at(0)[:, :kinds], axis=1)
            piped = np.maximum(both, 0.0) * layers * micro
            found: Floats = np.where(self.pp == 1, alone, piped) + self._outputs()
            return found
        hidden = self.tokens / micro * self.shape.hidden / self.tp * (WIDE + WIDE)
        layers = np.where(self.grid.column("vpp") == 1, np.sum(self.stages.at(-1)[:, :kinds], axis=1), 0.0)
        last: Floats = (np.maximum(sequence - hidden, 0.0) + np.maximum(both, 0.0) * layers) * micro
        return np.where(self.pp > 1, last, 0.0)

    def _received(self) -> Floats:
        """The buffers that a stage of torchtitan receives hidden states and their gradients in, for every micro-batch:
        at an end of the model one of its chunks receives only one of them."""
        if self.goal.framework != TORCHTITAN:
            return np.zeros(len(self.grid))
        chunks = self.grid.column("vpp")
        size = self.tokens * self.shape.hidden / self.tp * WIDE * self.grid.column("accumulation")
        found: Floats = np.where(self.pp > 1, size * (chunks + chunks - 1), 0.0) * REACH.slack
        return found

    def _outputs(self) -> Floats:
        """The logits of every micro-batch, where torchtitan's last stage keeps them."""
        release = self.base.stack.versions.get(TORCHTITAN, "")
        if self.goal.framework != TORCHTITAN or holds(Change.DROPS_OUTPUTS, release):
            return np.zeros(len(self.grid))
        logits = self.tokens * self.shape.vocab / self.tp * WIDE * self.grid.column("accumulation")
        found: Floats = np.where((self.pp > 1) & (self.grid.column("vpp") == 1), logits, 0.0)
        return found

    def _part(self, name: str, dense: Floats, routed: Floats) -> Floats:
        """Bytes of weights, gradients or optimizer states of so many elements."""
        each = np.array([getattr(one, name) for one in self.each])[self.grid.column("way")]
        like = {"outside": "weights", "wide": "states"}.get(name, name)
        spread = np.array([getattr(one, like) for one in self.spreads])[self.grid.column("way")]
        found: Floats = (dense / np.where(spread, self.shard, 1.0) + routed / np.where(spread, self.apart, 1.0)) * each
        return found

    def _activations(self, flight: Floats, kept: Left) -> Floats:
        """Bytes in flight: of each layer what is left of it; of the first layers of a chunk, where these run again,
        their input; and of each chunk without what passes on to the next."""
        plain, again = kept.plain, kept.again
        micro, policy, kinds = self.grid.column("micro_batch"), self.grid.column("policy"), len(self.shape.kinds)
        chunks = flight[:, -1]
        whole = np.array([one.again == ("",) and not one.block for one in self.grid.policies])[policy]
        block = np.array([one.block for one in self.grid.policies])[policy]
        left = np.where(whole[:, None], again, plain)
        total: Floats = np.sum(flight[:, :kinds] * left, axis=1)
        stages = self.pp * self.grid.column("vpp")
        layers = np.maximum(np.floor(np.ceil(self.grid.layers / stages) * block), 1.0)
        total = np.where(block > 0, total - chunks * layers * np.max(plain - again, axis=1), total)
        passed = chunks * self.goal.sequence / self.cp * self.shape.hidden / self.tp * WIDE
        found: Floats = np.maximum(total - passed, 0.0) * micro
        return found

    def _elements(self, weights: Sequence[Weight]) -> Pair:
        """Elements of a rank's part of weights: of dense ones, of experts."""
        found = []
        for expert in (False, True):
            chosen = [one for one in weights if stacked(one) is expert]
            each = [sum(held(one, Parts(*map(int, parts))) for one in chosen) for parts in self._parts.T]
            found.append(np.array(each, dtype=np.float64)[self._at])
        return found[0], found[1]

    def _layers(self, stage: int, elements: list[Pair]) -> Pair:
        """Elements of a stage's layers: of dense parts, of experts."""
        held_ = self.stages.at(stage)
        dense, routed = (np.zeros(len(self.grid)) for _ in (False, True))
        for at, (some, experts) in enumerate(elements):
            dense, routed = dense + held_[:, at] * some, routed + held_[:, at] * experts
        return dense, routed

    def _ends(self, stage: int) -> Floats:
        """Elements of the embedding on the first stage, of the head on the last."""
        first, last = self._elements(self.shape.outside_first)[0], self._elements(self.shape.outside_last)[0]
        one = self.pp == 1
        found: Floats = np.where(one | (stage == 0), first, 0.0) + np.where(one | (stage < 0), last, 0.0)
        return found


def _alone(goal: Goal, way: Way) -> Plan:
    """The plan of a strategy over all devices, with what it keeps by default."""
    wide = replace(goal, global_batch=goal.devices)
    return plan_of(wide, Candidate(way.strategy, way.shard, 1, 1, 1, 1, 1, 1, 1, NONE))


def each_of(plan: Plan) -> Each:
    """Bytes of a trained element at least: nothing of what an adapter, a quantised base or an offload changes."""
    precision, offload = plan.precision, plan.offload
    outside = weight = float(DTYPES[precision.weights].bytes_of(1))
    if precision.fp8 is not None and precision.fp8.param_gather:
        weight = min(weight, float(FP8.bytes_of(1)))
    if plan.quantization is not None or offload.params is not None:
        outside = weight = 0.0
    if not _whole(plan) or offload.params is not None or plan.optimizer.in_backward:
        return Each(weight, outside, 0.0, 0.0)
    gradient = DTYPES[precision.gradients]
    if offload.optimizer is not None:
        return Each(weight, outside, float(gradient.bytes_of(1)), 0.0)
    updates = updates_of(plan)
    aware = stepped_of(plan, updates)
    wide = FP32.bytes_of(1) if precision.master and gradient != FP32 and aware is None else 0
    return Each(weight, outside, float(gradient.bytes_of(1)), _states(plan, updates, aware), float(wide))


def _whole(plan: Plan) -> bool:
    """Whether every weight is trained."""
    return plan.adapter is None and plan.trainable == "all"


def _states(plan: Plan, updates: Updates, aware: Stepped | None) -> float:
    """Bytes of an element's master weight and optimizer states; of states that are not as large as the weight none."""
    own = DTYPES[plan.precision.master] if plan.precision.master else None
    master = own.bytes_of(1) if own is not None and plan.precision.master != plan.precision.weights else 0
    if aware is not None and aware.splits:
        master = INT16.bytes_of(1)
    if updates.row.fallback or any(one.shape is not Form.FULL for one in updates.row.states):
        return float(master)
    size = CUDA.small
    made = state_bytes(updates.row, (size, 1), own or DTYPES[plan.precision.weights], updates.how)
    here = sum(one.bytes for one in made if one.place is Place.DEVICE and one.elements == size)
    return master + here / size
