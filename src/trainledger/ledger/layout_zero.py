"""The layout of DeepSpeed's ZeRO-1 and -2: weights whole and flat on every rank, master weights and states in parts.

Source: deepspeed/runtime/zero/stage_1_and_2.py (0.9.5 to 0.19.8): __init__, step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.deepspeed import DEVICE_FLATTEN, LAZY_STATES
from trainledger.ledger.arrange import Micro, arranged
from trainledger.ledger.host import Lines, host_line, optimizer_lines, passing
from trainledger.ledger.layout import Copies
from trainledger.ledger.layout_deepspeed import KINDS, DeepSpeed, Moments
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.opening import Job
from trainledger.ledger.updates import Parameter, Runs, births, deaths
from trainledger.ledger.zero import Group, Zero, extremes, groups_of
from trainledger.ledger.zero12 import Stay, Zero12
from trainledger.lines.line import Account
from trainledger.lines.moments import CLIP, OPTIMIZER
from trainledger.lines.stream import EMPTY
from trainledger.model.program import Role, Weight

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates


class ZeroFlat(DeepSpeed):
    """ZeRO-1 and -2."""

    def __init__(self, job: Job, how: Zero, updates: Updates, room: int | None) -> None:
        """`room`: usable bytes of the device, None where it is not known."""
        super().__init__(job, how, updates)
        self.room = room
        self.groups = groups_of(self.grouped(), how)
        self.ends, self.asked = extremes(self.groups, how.ranks), how.rank is not None
        if how.rank is None:
            self.how = replace(how, rank=self.ends[0][0])
        self.parameters = tuple(
            Parameter(_part(group), self._named("this rank's part of the weights", at), how.dtypes.master, 1)
            for at, group in enumerate(self.groups)
        )
        self.stay = Stay()

    def _named(self, name: str, at: int) -> str:
        return f"{name}, group {at + 1}" if self.groups[1:] else name

    @property
    def shards(self) -> int:
        """Over how many ranks master weights and states are spread."""
        return self.how.ranks

    @property
    def rank(self) -> int | None:
        """Ranks differ by the parameters that their part begins and ends in."""
        return self.how.rank or 0

    @property
    def equals(self) -> tuple[tuple[int, int], ...]:
        """The rank that is looked at and, unless it was asked for, the emptiest one."""
        own = self.how.rank or 0
        return tuple((one, one) for one in sorted({own} if self.asked else {own, self.ends[1]}))

    # ---- building

    def build(self) -> Runs:
        """The model, each group's flat weights in its place, master weights, gradients that are zero for a moment."""
        whole = [(group, self.originals(group.slots)) for group in self.groups]
        frozen = births(self.originals(self.frozen()))
        runs = [*frozen, *(run for _, lines in whole for run in births(lines)), *self.buffers()]
        for at, (group, lines) in enumerate(whole):
            runs += self._group(at, group, lines)
        zeros = [] if self.how.offload else [(self._flat_gradient(at), 1) for at in range(len(self.groups))]
        runs += births(zeros)
        if not LAZY_STATES.holds(self.how.version) and not self.how.offload:
            runs += [*self.states(self.parameters), *self._all_temporaries()]
        runs += deaths(zeros)
        if self.how.offload and self.trained:
            largest = max(slot.size for slot in self.trained)
            name = "gradient on its way to the host"
            runs.append(((self.flat(Account.REDUCTION, name, largest, self.how.dtypes.weights) + 1,), 1))
        return runs

    def _group(self, at: int, group: Group, lines: Copies) -> Runs:
        dtypes, ranks = self.how.dtypes, self.how.ranks
        flat = self.flat(Account.WEIGHTS, self._named("flat weights", at), group.part * ranks, dtypes.weights)
        born, gone = [((flat + 1,), 1)], deaths(lines)
        emptied = ((EMPTY,), 1)
        runs: Runs = [emptied, *born, *gone] if self._in_place() else [*gone, emptied, *born]
        if self.how.offload:
            return runs
        cast, away = self.passing(Account.STEP, "copy of this rank's part", group.part, dtypes.weights)
        name = self._named("master weights, this rank's part", at)
        master = self.flat(Account.MASTER, name, group.part, dtypes.master, ranks) + 1
        return [*runs, ((cast, master, away) if dtypes.weights != dtypes.master else (master,), 1)]

    def _in_place(self) -> bool:
        """Whether weights are flattened on the device: newer releases do where it has room for those trained twice."""
        every = [tensor for slot in self.slots for tensor, _ in self.tensors(slot.weight)]
        there = sum(one.dtype.bytes_of(elements(one.dims)) * one.copies for one in every)
        there += self.how.dtypes.weights.bytes_of(sum(slot.size for slot in self.trained))
        return DEVICE_FLATTEN.holds(self.how.version) and (self.room is None or there <= self.room)

    def _flat_gradient(self, at: int) -> int:
        name = self._named("gradient of this rank's part, flat", at)
        return self.flat(Account.STEP, name, self.groups[at].part, self.how.dtypes.master, self.how.ranks)

    def _all_temporaries(self) -> Runs:
        return [run for one in self.parameters for run in self.temporaries((one,))]

    def host(self) -> Lines:
        """An offloaded optimizer, copies on the way to and from it, and whole gradients between micro-batches."""
        kept, dtypes = self.how.offload, self.how.dtypes
        if kept is None or not self.trained:
            return ()
        updates, parts = self.updates, [group.part for group in self.groups]
        options = updates.options(self.parameters[0].weight)
        found = list(optimizer_lines(kept, parts, dtypes.master, updates.row, options))
        largest = max(slot.size for slot in self.trained)
        name = "gradient on its way from the device"
        found.append((host_line(Account.REDUCTION, name, largest, dtypes.weights, kept.pinned), 1))
        for part in parts:
            updated = host_line(Account.WEIGHTS, "updated weights to copy", part, dtypes.weights, kept.masters)
            found.append((passing(updated), 1))
        if self.schedule.count > 1:
            for group in self.groups:
                for slot in group.owned(self.how.rank or 0):
                    name = f"accumulated gradient of {slot.name}"
                    found.append((host_line(Account.GRADIENTS, name, slot.size, dtypes.weights, kept.pinned), 1))
        return tuple(found)

    # ---- micro-batches

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        count = min(self.schedule.count, KINDS)
        walked = {True: walk(self.job, leaves)}

        def step(later: bool) -> tuple[Micro, ...]:
            found = []
            for number in range(count):
                fresh = self.how.stage > 1 or self.how.dtypes.wide or not number
                if fresh not in walked:
                    walked[fresh] = walk(self.job, replace(leaves, fresh=fresh))
                hooks = Zero12(self.job.book, self.how, self.groups, self.stay, number == count - 1)
                found.append(arranged(*walked[fresh], hooks))
            return tuple(found)

        return step

    # ---- one step of the optimizer

    def step(self, first: bool) -> Moments:
        """Overflow and norms over all groups, then each group: its gradient flat in fp32, states, update."""
        kept, self.stay = self.stay.kept, Stay()
        if self.how.offload:
            return []
        rank = self.how.rank or 0
        pieces = [[group.piece(slot, rank) for slot in group.owned(rank)] for group in self.groups]
        every = [size for sizes in pieces for size in sizes]
        moments: Moments = [(CLIP, [*self.overflow(every), *self.norms(every)])]
        runs: Runs = []
        for at in range(len(self.groups)):
            runs += self._update(at, len(pieces[at]), kept, first)
        return [*moments, (OPTIMIZER, runs)]

    def _update(self, at: int, pieces: int, kept: list[int], first: bool) -> Runs:
        one = self.parameters[at]
        ahead, used = self._flattened(at, pieces, kept)
        born = self.states((one,)) if first and LAZY_STATES.holds(self.how.version) else []
        return [*ahead, *born, *self.temporaries((one,)), *([((-used - 1,), 1)] if used is not None else [])]

    def _flattened(self, at: int, pieces: int, kept: list[int]) -> tuple[Runs, int | None]:
        """This rank's gradients of a group as one tensor of the master weights' dtype; the buffer that they lie in goes
        with the last group."""
        group, how, last = self.groups[at], self.how, at == len(self.groups) - 1
        if how.compact:
            return [], kept[at]
        events: list[int] = []
        joined = None
        if pieces > 1:
            name = self._named("gradients of this rank's part, joined", at)
            joined = self.flat(Account.STEP, name, group.part, how.came, how.ranks)
            events.append(joined + 1)
        used = joined
        if how.came != how.dtypes.master:
            used = self._flat_gradient(at)
            events += [used + 1, *([-joined - 1] if joined is not None else [])]
        if last:
            events += [-line - 1 for line in kept]
        return [(tuple(events), 1)], used


def _part(group: Group) -> Weight:
    """A group's part on one rank as a weight of the optimizer."""
    return Weight("flat", (Axis(Dim.ELEMENTS, group.part),), Role.MATRIX)
