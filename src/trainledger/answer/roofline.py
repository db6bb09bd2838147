"""The time of a step by a roofline: products, attention and passes through memory, exchanges that nothing hides, the
pipeline's bubble, the update. Arrays over all candidates of a search at once; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from trainledger.answer.roofline_links import Links
from trainledger.answer.search_goal import Goal
from trainledger.answer.search_shape import Kind, Shape, held, inner_of, sides_of, stacked
from trainledger.answer.search_space import Floats, Grid
from trainledger.answer.search_stages import Stages, summed
from trainledger.facts.dtypes import BF16, DTYPES, FP32
from trainledger.facts.roofline import (
    ATTENTION,
    CAUSAL,
    FASTER,
    HOST,
    LAUNCH,
    MEMORY,
    PRODUCT,
    PRODUCT_LOW,
    TRAFFIC,
    WORK,
)
from trainledger.facts.search_space import SPREADS
from trainledger.lines.parts import Parts
from trainledger.model.program import Weight
from trainledger.plan.schema import Plan

WIDE = float(BF16.bytes_of(1))  # bytes of an element that layers pass on
UPDATED = ("gradient", *("master weight", "first moment", "second moment") * len(("read", "written")))


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a step by what takes them, arrays over the candidates; they add up to `step`."""

    compute: Floats
    again: Floats
    tensor: Floats
    context: Floats
    experts: Floats
    sharding: Floats
    host: Floats
    bubble: Floats
    passed: Floats
    replicas: Floats
    update: Floats

    @property
    def step(self) -> Floats:
        """The whole step."""
        found: Floats = np.sum([getattr(self, one.name) for one in fields(self)], axis=0)
        return found

    def of(self, row: int) -> dict[str, float]:
        """One candidate's parts."""
        return {one.name: float(getattr(self, one.name)[row]) for one in fields(self)}


@dataclass(frozen=True, slots=True)
class Layer:
    """Seconds of one layer and micro-batch: kernels forward and backward; what runs again; exchanges of tensor, context
    and expert parallelism and of sharded weights that nothing hides. Elements of its weights on a rank: of dense parts
    and of experts."""

    compute: Floats
    again: Floats
    tensor: Floats
    context: Floats
    experts: Floats
    sharding: Floats
    host: Floats
    dense: Floats
    routed: Floats


PARTS = ("compute", "again", "tensor", "context", "experts", "sharding", "host")


class Roofline:
    """The time of every candidate of a grid."""

    def __init__(self, goal: Goal, base: Plan, shape: Shape, grid: Grid, away: Floats | None = None) -> None:
        """`away`: bytes of a layer of each kind that one sequence sends to the host (candidates, kinds)."""
        self.goal, self.shape, self.grid = goal, shape, grid
        low, speeds = base.precision.compute in FASTER, goal.speeds
        self.product = speeds.peak_low * PRODUCT_LOW.value if low else speeds.peak * PRODUCT.value
        self.attention = speeds.peak * ATTENTION.value
        self.memory = (goal.device.bandwidth or np.inf) * MEMORY.value
        self.tp, self.cp, self.pp, self.vpp, self.ep, self.etp = (
            grid.column(name).astype(np.float64) for name in ("tp", "cp", "pp", "vpp", "ep", "etp")
        )
        self.dp: Floats = goal.devices / (self.tp * self.cp * self.pp)
        self.apart: Floats = np.maximum(goal.devices / (self.pp * self.etp * self.ep), 1.0)
        self.count = grid.column("accumulation").astype(np.float64)
        self.tokens: Floats = grid.column("micro_batch") * goal.sequence / self.cp
        self.links = Links(speeds)
        way = grid.column("way")
        shard = np.array([one.shard for one in grid.ways], dtype=np.float64)[way]
        self.shard: Floats = np.where(shard > 0, shard, self.dp * self.cp)
        spreads = [SPREADS[one.strategy] for one in grid.ways]
        self.gathers = np.array([one.gathered for one in spreads])[way]
        self.spread = np.array([one.states for one in spreads])[way]
        whole = base.adapter is None and base.trainable == "all"
        self.behind = WORK.backward if whole else WORK.frozen  # of a product, backward
        self.trained = float(whole)  # an adapter's weights are too few to count
        self.reduced = DTYPES[base.precision.reduce or FP32.name].bytes_of(1)
        combined = np.stack([self.tp, self.etp, self.ep]).astype(np.int64)
        self._parts, self._at = np.unique(combined, axis=1, return_inverse=True)
        self.stages = Stages(base, grid, shape)
        self.away = np.zeros((len(grid), len(shape.kinds))) if away is None else away
        self.layers = [self.layer(kind, self.away[:, at]) for at, kind in enumerate(shape.kinds)]

    def times(self) -> Times:
        """Every candidate's time by part."""
        head = self.head()
        whole = [np.sum([getattr(one, name) for name in PARTS], axis=0) for one in self.layers]
        longest = self.stages.longest(whole, head)
        found = {name: summed(longest, [getattr(one, name) for one in self.layers]) * self.count for name in PARTS}
        found["compute"] = found["compute"] + longest[:, -1] * head * self.count
        micro: Floats = np.sum(list(found.values()), axis=0) / self.count
        return Times(
            **found,
            bubble=micro * (self.pp - 1) / self.vpp,
            passed=self.passed(micro),
            replicas=self.replicas(micro),
            update=self.update(),
        )

    def layer(self, kind: Kind, away: Floats) -> Layer:
        """One layer of a kind."""
        products, again, dense, routed = (np.zeros(len(self.grid)) for _ in PARTS[:4])
        whole, chosen = self._again(kind)
        for weight in kind.matrices:
            local = self.local(weight)
            seconds = self._product(kind, weight, local)
            products = products + seconds
            again = again + seconds * chosen[weight.name]
            if stacked(weight):
                routed = routed + local
            else:
                dense = dense + local
        scores, passes = self._scores(), self._passes(kind)
        once = products + scores + passes
        back = products * self.behind + scores * WORK.attention_backward + passes * WORK.element_backward
        tensor, experts, context = self._tensor(), self._experts(kind), self._context(scores)
        again = again + (once + tensor + experts + context) * whole
        sharding = self._sharding(dense + routed, once, back)
        return Layer(
            once + back, again, tensor + tensor, context * (1 + TRAFFIC.ring_backward), experts + experts, sharding,
            self._hosted(away, once, back), dense, routed,
        )  # fmt: skip

    def _hosted(self, away: Floats, forward: Floats, backward: Floats) -> Floats:
        """Seconds of activations' way to the host and back that a layer's own passes do not hide."""
        seconds = away * self.grid.column("micro_batch") / HOST.value
        found: Floats = np.maximum(seconds - forward, 0.0) + np.maximum(seconds - backward, 0.0)
        return found

    def _again(self, kind: Kind) -> tuple[Floats, dict[str, Floats]]:
        """By candidate the share of layers that run again whole, and for each matrix whether it does alone."""
        policy = self.grid.column("policy")
        share = np.array([one.block or 1.0 if one.again == ("",) else 0.0 for one in self.grid.policies])
        found: dict[str, Floats] = {}
        for weight in kind.matrices:
            starts = [one.again if one.again != ("",) else () for one in self.grid.policies]
            hits = np.array([float(weight.name.startswith(one)) if one else 0.0 for one in starts])
            found[weight.name] = hits[policy]
        return share[policy], found

    def local(self, weight: Weight) -> Floats:
        """Elements of each rank's part of a weight."""
        each = np.array(
            [held(weight, Parts(int(tp), int(etp), int(ep))) for tp, etp, ep in self._parts.T], dtype=np.float64
        )
        return each[self._at]

    def _product(self, kind: Kind, weight: Weight, local: Floats) -> Floats:
        """Seconds of a product forward: its operations, or its weight and rows through memory, whichever are longer."""
        rows, used = self.tokens, local
        if stacked(weight):
            rows = self.tokens / self.tp * self.etp * kind.top_k
            used = local * self.ep / max(self.goal.sizes.experts or 1, 1)
        work = rows * used * WORK.product / self.product
        through = (local + rows * sides_of(weight, self.shape.hidden) / self.tp) * WIDE / self.memory
        found: Floats = np.maximum(work, through)
        return found

    def _scores(self) -> Floats:
        """Seconds of scores, softmax and values forward."""
        widths = (self.shape.queries + self.shape.values) / self.tp
        return self.tokens * self.goal.sequence * widths * WORK.product * CAUSAL.value / self.attention

    def _passes(self, kind: Kind) -> Floats:
        """Seconds of element-wise kernels forward: two norms and residuals, rotary embedding, gate, tokens sorted."""
        shape = self.shape
        joined = (WORK.norm + WORK.residual) * shape.hidden
        wide = joined + joined + WORK.turned * (shape.queries + shape.keys) + WORK.gate * inner_of(kind, shape.hidden)
        found: Floats = self.tokens * (wide + WORK.sent * kind.top_k * shape.hidden) / self.tp * WIDE / self.memory
        return found

    def _tensor(self) -> Floats:
        """Seconds of gathers and scatters of hidden states over tp, forward; as long backward."""
        size = self.tokens * self.shape.hidden * WIDE * TRAFFIC.sums
        return self.links.gather(size, self.tp, np.ones_like(self.tp), TRAFFIC.sums)

    def _context(self, scores: Floats) -> Floats:
        """Seconds of keys and values around the ring that scores do not hide, forward."""
        size = self.tokens * self.shape.keys / self.tp * WIDE * self.cp
        found: Floats = np.maximum(self.links.gather(size, self.cp, self.tp) - scores, 0.0)
        return found

    def _experts(self, kind: Kind) -> Floats:
        """Seconds of tokens to their experts' ranks and back, forward."""
        size = self.tokens / self.tp * kind.top_k * self.shape.hidden * WIDE * TRAFFIC.exchanges
        found = self.links.exchange(size, self.ep, self.etp, TRAFFIC.exchanges)
        return found if kind.top_k else np.zeros_like(found)

    def _sharding(self, elements: Floats, forward: Floats, backward: Floats) -> Floats:
        """Seconds of gathers and scatters of a layer's weights that its own passes do not hide; beside a pipeline they
        stay gathered, and are reduced once a step."""
        one = self.links.gather(elements * WIDE, self.shard, self.tp)
        both = one + self.links.gather(elements * self.reduced, self.shard, self.tp)
        seconds = np.maximum(one - forward, 0.0) + np.maximum(both - backward, 0.0)
        found: Floats = np.where(self.gathers, np.where(self.pp > 1, both / self.count, seconds), 0.0)
        return found

    def head(self) -> Floats:
        """Seconds of the output layer and its loss, forward and backward, of one micro-batch."""
        local = self.shape.hidden * self.shape.vocab / self.tp
        work = self.tokens * local * WORK.product / (self.goal.speeds.peak * PRODUCT.value)
        through = self.tokens * self.shape.vocab / self.tp * WIDE * WORK.residual / self.memory
        found: Floats = (work + through) * (1 + WORK.backward)
        return found

    def passed(self, micro: Floats) -> Floats:
        """Seconds of sendings between stages that nothing hides: all of them in 1F1B, of interleaved chunks what is
        longer than a chunk takes."""
        size = self.tokens * self.shape.hidden * WIDE / self.tp
        rate = self.links.between(self.tp * self.cp * self.dp, self.pp)
        one = np.where(self.pp > 1, size / rate + LAUNCH.value, 0.0) * TRAFFIC.passed
        hidden = np.maximum(one - micro / self.vpp, 0.0) * self.vpp
        found: Floats = np.where(self.vpp > 1, hidden, one) * self.count
        return found

    def replicas(self, micro: Floats) -> Floats:
        """Seconds of gradients' sums and of gathered parameters that one micro-batch's passes do not hide."""
        dense, routed = self._held()
        size = self.reduced + WIDE
        seconds = self.links.gather(dense * size, self.dp * self.cp, self.tp)
        seconds = seconds + self.links.gather(routed * size, self.apart, self.etp * self.ep)
        copies = np.maximum(self.dp * self.cp / self.shard, 1.0)
        sums = dense / self.shard * self.reduced * TRAFFIC.reduce
        seconds = np.where(self.gathers, self.links.gather(sums, copies, self.tp * self.shard), seconds)
        found: Floats = np.maximum(seconds * self.trained - micro, 0.0)
        return found

    def update(self) -> Floats:
        """Seconds of the optimizer's step: what it reads and writes of its states, through memory."""
        dense, routed = self._held()
        each = FP32.bytes_of(1) * len(UPDATED) + WIDE
        spread = dense / np.where(self.spread, self.shard, 1.0) + routed / np.where(self.spread, self.apart, 1.0)
        found: Floats = spread * each / self.memory * self.trained
        return found

    def _held(self) -> tuple[Floats, Floats]:
        """Elements of dense parts and of experts on the rank that holds most of them."""
        most = self.stages.most
        return most([one.dense for one in self.layers]), most([one.routed for one in self.layers])
