"""The layout of DeepSpeed's ZeRO-3: every parameter spread over the ranks by itself, updated in sub-groups.

Source: deepspeed/runtime/zero/stage3.py (0.9.5 to 0.19.8): __init__, step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import BORN_FP32, DEEPSPEED, GRADIENT_DTYPE, LAZY_STATES, SWAP
from trainledger.facts.dtypes import BOOL, FP16, UINT8, DType
from trainledger.ledger.arrange import Micro, arranged
from trainledger.ledger.book import Made
from trainledger.ledger.host import Kept, Lines, host_line, nvme_line, optimizer_lines, passing
from trainledger.ledger.layout_deepspeed import KINDS, DeepSpeed, Moments
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.opening import Job
from trainledger.ledger.registered import Slot
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import Parameter, Runs, births
from trainledger.ledger.zero import Zero
from trainledger.ledger.zero3 import REDUCTION, Zero3, modules_of
from trainledger.ledger.zero3_codes import Coded, Codes
from trainledger.ledger.zero3_fetch import Coordinator
from trainledger.ledger.zero3_gathered import Fetching, Gathered
from trainledger.ledger.zero3_split import on_device, staying
from trainledger.ledger.zero3_spread import dtype_of, spread
from trainledger.lines.line import Account, Line
from trainledger.lines.moments import CLIP, OPTIMIZER
from trainledger.lines.shards import rows_of
from trainledger.lines.stream import EMPTY
from trainledger.model.program import Role, Weight


@dataclass(frozen=True, slots=True)
class Parts:
    """What ZeRO-3 adds: how parameters are gathered; elements at which a sub-group is full; where weights are offloaded
    to, and elements of them that NVMe leaves in the host's memory; whether the model was built whole, outside
    `zero.Init`, so that it lies on the device before it is spread; the share of an offloaded optimizer that goes to the
    host; how weights are gathered in 8 bits (None: as they are)."""

    fetching: Fetching
    sub_group: int
    offload: Kept | None
    kept: int
    whole: bool
    ratio: float
    codes: Codes | None


class ZeroParts(DeepSpeed):
    """ZeRO-3."""

    def __init__(self, job: Job, how: Zero, updates: Updates, parts: Parts) -> None:
        super().__init__(job, how, on_device(updates, how.version) if how.offload else updates)
        self.parts, self.hosted = parts, updates
        self.every, self.slots = self.slots, spread(self.slots)
        self.subs = tuple(sub for group in self.grouped() for sub in self._cut(group))
        self.here = range(len(self.subs))  # sub-groups that are updated on the device
        if how.offload:
            self.here = range(0) if how.offload.nvme else staying(len(self.subs), parts.ratio, how.version)
        self.parameters = tuple(
            Parameter(_flat(sum(sub)), self._named("this rank's parts of the weights", at), how.dtypes.master, 1)
            for at, sub in enumerate(self.subs)
        )
        plain, codes = Gathered(job.book, parts.fetching), parts.codes
        self.order = Coordinator(parts.fetching, Coded(job.book, parts.fetching, codes) if codes else plain)

    def _cut(self, group: tuple[Slot, ...]) -> Iterator[tuple[int, ...]]:
        """Elements of each part, closed when their sum reaches the sub-group's size."""
        held: list[int] = []
        sizes = [self.part(slot) for slot in group]
        limit = self.parts.sub_group if self.parts.sub_group < sum(sizes) else sum(sizes) + 1
        for size in sizes:
            held.append(size)
            if sum(held) >= limit:
                yield tuple(held)
                held = []
        if held:
            yield tuple(held)

    def part(self, slot: Slot) -> int:
        """Elements that each rank holds of a parameter, the last ones with padding."""
        return rows_of(slot.size, self.how.ranks)

    def _named(self, name: str, at: int) -> str:
        return f"{name}, sub-group {at + 1}" if self.subs[1:] else name

    @property
    def shards(self) -> int:
        """Over how many ranks everything is spread."""
        return self.how.ranks

    @property
    def total(self) -> int:
        """Elements of this rank's parts of all trained parameters."""
        return sum(self.part(slot) for slot in self.trained)

    # ---- building

    def build(self) -> Runs:
        """Parts of the weights, master weights by sub-group, the reduce bucket, the gradients' parts."""
        how, ranks = self.how, self.how.ranks
        dtypes = how.dtypes
        runs = self._spread()
        if not self.parts.fetching.offload:
            name = "weights, this rank's parts"
            runs.append(((self.flat(Account.WEIGHTS, name, self.total, dtypes.weights, ranks) + 1,), 1))
        runs += self._masters()
        if how.offload:  # gradients lie beside what they update, from here on
            runs += [((self._beside(at) + 1,), 1) for at in self.here]
        if not LAZY_STATES.holds(how.version):
            for one in (self.parameters[at] for at in self.here):
                runs += [*self.states((one,)), *self.temporaries((one,))]
        if not how.offload:
            largest = max((sum(sub) for sub in self.subs), default=0)
            runs.append((self.passing(Account.STEP, "gradient that is zero", largest, dtypes.master), 1))
        if how.contiguous:
            runs.append(((self.flat(Account.REDUCTION, "reduce bucket", how.bucket, dtypes.reduce) + 1,), 1))
        if not how.offload:
            name = "gradients, this rank's parts"
            runs.append(((self.flat(Account.GRADIENTS, name, self.total, self.kept, ranks) + 1,), 1))
        return [*runs, *self._hooked(), *([] if self.parts.whole else self.buffers())]

    def forward_only(self) -> Runs:
        """Parts of the weights, and buffers, of a model that only runs forward: its engine has no buckets."""
        return [*self._spread(), *([] if self.parts.whole else self.buffers())]

    def _beside(self, at: int) -> int:
        """The line of the gradients of a sub-group that an offloaded optimizer leaves on the device."""
        name = self._named("fp32 gradients, this rank's parts", at)
        return self.flat(Account.GRADIENTS, name, sum(self.subs[at]), self.how.dtypes.master, self.how.ranks)

    def _spread(self) -> Runs:
        """Weights until each rank has its parts alone. A model built whole lies on the device, and gives way to parts
        one weight at a time; those of trained weights then pass through the host, to be joined, and what was cached is
        given back."""
        offload = self.parts.fetching.offload
        if not self.parts.whole:
            return [] if offload else [(tuple(self._piece(slot) + 1 for slot in self.frozen()), 1)]
        runs = [*births(self.originals(self.every)), *self.buffers()]
        for slot in self.slots:
            line, copies = self.originals((slot,))[0]
            runs.append(((*(() if offload else (self._piece(slot) + 1,)), *(-line - 1,) * copies), 1))
        gone = tuple(-self._piece(slot) - 1 for slot in self.trained)
        return runs if offload else [*runs, ((*gone, EMPTY), 1)]

    def _piece(self, slot: Slot) -> int:
        """The line of this rank's part of one weight."""
        trained = self.job.trained(slot.weight)
        name = "part of a trained weight" if trained else "part of a frozen weight"
        dtype = dtype_of(slot, self.how.dtypes.weights)
        return self.flat(Account.WEIGHTS, name, self.part(slot), dtype, self.how.ranks)

    def _hooked(self) -> Runs:
        """Every trained parameter is gathered once, on the stream of compute, for its gradient's hook."""
        runs: Runs = []
        for slot in self.trained:
            size = self.part(slot) * self.how.ranks
            runs.append((self.passing(Account.STEP, "weight gathered for its hook", size, self.how.dtypes.weights), 1))
        return runs

    @property
    def kept(self) -> DType:
        """The dtype in which this rank's gradients are kept."""
        dtypes = self.how.dtypes
        return dtypes.accumulate if GRADIENT_DTYPE.holds(self.how.version) else dtypes.weights

    def _masters(self) -> Runs:
        """Master weights by sub-group, each a copy of a copy. Newer releases cast first, under a name that holds one
        sub-group's copy until the next one's is there."""
        runs: Runs = []
        held: tuple[int, ...] = ()
        for at in self.here:
            born, gone, master = self._master(at)
            if BORN_FP32.holds(self.how.version):
                runs.append(((*born, *held, master), 1))
                held = gone
            else:
                runs.append(((*born, master, *gone), 1))
        return [*runs, (held, 1)]

    def _master(self, at: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Births and deaths of a sub-group's copy (none: weights have the master weights' dtype), and its birth."""
        dtypes, size = self.how.dtypes, sum(self.subs[at])
        name = self._named("master weights, this rank's parts", at)
        master = self.flat(Account.MASTER, name, size, dtypes.master, self.how.ranks) + 1
        if dtypes.weights == dtypes.master:
            return (), (), master
        between = dtypes.master if BORN_FP32.holds(self.how.version) else dtypes.weights
        born, gone = self.passing(Account.STEP, self._named("copy of a sub-group", at), size, between)
        return (born,), (gone,), master

    def host(self) -> Lines:
        """Offloaded gradients, optimizer and weights."""
        kept, weights, dtypes = self.how.offload, self.parts.offload, self.how.dtypes
        found: list[tuple[Line, int]] = []
        if kept is not None and self.trained:
            name = "gradients, this rank's parts"
            found.append((host_line(Account.GRADIENTS, name, self.total, dtypes.weights, kept.pinned), 1))
            options = self.hosted.options(self.parameters[0].weight)
            sizes = [sum(sub) for at, sub in enumerate(self.subs) if at not in self.here]
            found += optimizer_lines(kept, sizes, dtypes.master, self.hosted.row, options)
        if weights is None:
            return tuple(found)
        coded = sum(self.part(slot) for slot in self.slots if slot.weight.packed)
        every, name = sum(self.part(slot) for slot in self.slots) - coded, "weights, this rank's parts"
        if coded:
            found.append((host_line(Account.WEIGHTS, "codes, this rank's parts", coded, UINT8, weights.pinned), 1))
        if weights.nvme:
            size = (weights.size or SWAP.weight_elements) * (weights.buffers or SWAP.weight_buffers)
            buffers = host_line(Account.WEIGHTS, "swap buffers of weights", size, dtypes.weights, weights.rounded)
            found.append((passing(buffers), 1))
            every, away = min(every, self.parts.kept), max(every - self.parts.kept, 0)
            found += [(nvme_line(Account.WEIGHTS, name, away, dtypes.weights), 1)] if away else []
        return (*found, (host_line(Account.WEIGHTS, name, every, dtypes.weights, weights.pinned), 1))

    # ---- micro-batches

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step: the run's first is traced, a step's first finds nothing left of others."""
        pieces, named = walk(self.job, leaves)
        modules = modules_of(self.job.model, self.slots, pieces.closing)
        steady: dict[tuple[object, ...], Micro] = {}  # those that leave the coordinator as they found it

        def of() -> Micro:
            before = self.order.state
            if before in steady:
                return steady[before]
            made = arranged(pieces, named, Zero3(self.job.book, self.how, modules, self.order))
            if self.order.state == before:
                steady[before] = made
            return made

        return lambda later: tuple(of() for _ in range(min(self.schedule.count, KINDS)))

    # ---- one step of the optimizer

    def step(self, first: bool) -> Moments:
        """All gathered weights go; norms; each sub-group's update; weights that always stay are gathered again."""
        moments: Moments = [(CLIP, [(tuple(self.order.close(self.slots)), 1)])]
        if not self.how.offload:
            if self.how.dtypes.weights == FP16:
                moments.append((CLIP, self._infinities()))
            moments.append((CLIP, self.norms([self.part(slot) for slot in self.trained])))
        if self.here:
            moments.append((OPTIMIZER, [run for at in self.here for run in self._update(at, self.subs[at], first)]))
        staying = (slot for slot in self.slots if self.parts.fetching.stays(slot))
        again = [event for slot in staying for event in self.order.gathered.plainly((slot,))]
        return [*moments, (OPTIMIZER, [(tuple(again), 1)])]

    def _infinities(self) -> Runs:
        """isinf, then isnan of all gradients at once, on the stream of reductions."""
        stream = REDUCTION if self.how.overlap else 0
        size, one = (Axis(Dim.ELEMENTS, self.total),), (Axis(Dim.ELEMENTS, 1),)
        values, flags, found = (
            self.job.book.made(Account.CLIP, name, dims, Made(dtype, DEEPSPEED.source, self.how.ranks, stream)) + 1
            for name, dims, dtype in (
                ("magnitudes of the gradients", size, self.kept),
                ("overflow in the gradients", size, BOOL),
                ("overflow in any gradient", one, BOOL),
            )
        )
        return [((values, flags, -values, found, -flags, -found, flags, found, -flags, -found), 1)]

    def _update(self, at: int, sub: tuple[int, ...], first: bool) -> Runs:
        """A sub-group's gradients flat (one is so already), in the master weights' dtype, states, the update."""
        one, size, ranks = self.parameters[at], sum(sub), self.how.ranks
        born = self.states((one,)) if first and LAZY_STATES.holds(self.how.version) else []
        if self.how.offload:
            return [*born, *self.temporaries((one,))]
        events: list[int] = []
        used = None
        if sub[1:]:
            name = self._named("gradients of this rank's parts, joined", at)
            used = self.flat(Account.STEP, name, size, self.kept, ranks)
            events.append(used + 1)
        if self.kept != self.how.dtypes.master:
            raised = self.flat(Account.STEP, self._named("gradient, flat", at), size, self.how.dtypes.master, ranks)
            events += [raised + 1, *([-used - 1] if used is not None else [])]
            used = raised
        gone = [((-used - 1,), 1)] if used is not None else []
        return [(tuple(events), 1), *born, *self.temporaries((one,)), *gone]


def _flat(size: int) -> Weight:
    return Weight("flat", (Axis(Dim.ELEMENTS, size),), Role.MATRIX)
