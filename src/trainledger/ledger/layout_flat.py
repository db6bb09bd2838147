"""The layout of FSDP1: a unit's weights as one flat parameter, of which every rank holds an equal part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import ACCUMULATE, MODELS
from trainledger.facts.kernel_sets import WHOLE_ADAPTERS
from trainledger.ledger.arrange import Micro, Pieces, arranged
from trainledger.ledger.fsdp1 import Fsdp1, Stay
from trainledger.ledger.fsdp1_how import Flat
from trainledger.ledger.fsdp1_lines import FlatLines
from trainledger.ledger.fsdp1_modules import Fsdp1Modules
from trainledger.ledger.host import Lines
from trainledger.ledger.layout import Copies, Layout, Schedule, Stored, buffers_of, weights_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.offload import host_lines
from trainledger.ledger.opening import Job
from trainledger.ledger.units import Member, Unit, Units
from trainledger.ledger.updates import Parameter, Runs, births
from trainledger.lines.line import Account
from trainledger.model.program import Weight
from trainledger.model.quantised import flattened, tensors_of

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates

FLAT = "flat parameter"


class FlatSharded(Layout):
    """FSDP1, sharded or (with one rank a group) whole."""

    def __init__(self, job: Job, schedule: Schedule, units: Units, how: Flat, updates: Updates) -> None:
        self.units, self.how, self.updates = units, how, updates
        self.stay, self.lines = Stay(), FlatLines(job.book, how)
        super().__init__(job, schedule, Stored(how.stored, how.stored))
        self.stepped = self.parameters
        if how.offload:  # the optimizer steps on the host
            self.parameters = ()

    def host(self) -> Lines:
        """Offloaded parts of the flat parameters; a gradient of each, made at once; states."""
        if not self.how.offload:
            return ()
        parts = [
            (f"flat parameter of {unit.name}", self.how.part(unit), self.how.kept(unit), count)
            for unit, count in self._counts().items()
        ]
        return host_lines(parts, parts, self.stepped, self.updates)

    @property
    def reduces(self) -> bool:
        """Unless it is told to ignore what is trained."""
        return not self.units.ignored

    def parameters_of(self) -> tuple[Parameter, ...]:
        """What the optimizer sees: each parameter's piece of this rank's part, or that part as one."""
        return self._pieces() if self.how.named else (*self._flats(), *self._ignored())

    def _ignored(self) -> tuple[Parameter, ...]:
        """Weights that every rank holds whole."""
        return tuple(
            Parameter(weight, prefix + weight.name, self.stored(weight), count)
            for prefix, weight, count in weights_of(self.job.model)
            if weight in self.units.ignored
        )

    def _pieces(self) -> tuple[Parameter, ...]:
        found: dict[Member, Counter[int]] = {}  # one unit may hold the same weight of several layers
        for unit, count in self._counts().items():
            for member, size in self.how.pieces(unit):
                found.setdefault(member, Counter())[size] += count
        return tuple(
            Parameter(piece, prefix + weight.name, self.stored(weight), copies)
            for prefix, weight, count in weights_of(self.job.model)
            if self.job.trained(weight)
            for piece, copies in self._piece((prefix, weight, count), found)
        )

    def _piece(self, one: tuple[str, Weight, int], found: dict[Member, Counter[int]]) -> list[tuple[Weight, int]]:
        """Pieces of a weight (with its line's prefix, and its copies) that lie in this rank's part, and how many."""
        prefix, weight, count = one
        if weight in self.units.ignored:
            return [(weight, count)]
        sizes = found.pop(Member(prefix, weight), Counter())  # blocks may share names
        return [(_flat(weight, size), copies) for size, copies in sizes.items()]

    def _flats(self) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(
                _flat(unit.members[0].weight, self.how.part(unit)), f"{FLAT} of {unit.name}", self.how.stored, count
            )
            for unit, count in sorted(self._counts().items(), key=lambda one: one[0] is not self.units.root)
            if self._trains(unit)  # a module's own parameter comes before those of what it holds
        )

    def _counts(self) -> Counter[Unit]:
        """Every unit in the order in which FSDP wraps it, with how many are equal."""
        return Counter(self.units.every())

    def _trains(self, unit: Unit) -> bool:
        return any(self.job.trained(member.weight) for member in unit.members)

    def weights(self) -> Copies:
        """The flat parameters' parts, and buffers."""
        lines = self.lines
        shards = [] if self.how.offload else [(lines.shard(unit), count) for unit, count in self._counts().items()]
        return shards + self._whole() + self._beside() + buffers_of(self.job)

    def _whole(self) -> Copies:
        book = self.job.book
        return [
            (book.tensor(Account.WEIGHTS, one.name, one.weight.dims, one.dtype, WHOLE_ADAPTERS.source), one.count)
            for one in self._ignored()
        ]

    def _beside(self) -> Copies:
        """Scales and the like of quantised weights, which every rank holds."""
        book = self.job.book
        return [
            (book.tensor(Account.WEIGHTS, prefix + one.name, one.dims, one.dtype, MODELS), count * one.copies)
            for prefix, weight, count in weights_of(self.job.model)
            if weight.packed is not None
            for one in tensors_of(weight, self.how.stored)
            if one not in flattened(weight, self.how.stored)
        ]

    def building(self) -> Runs:
        """Every unit in turn: its weights, one by one, the flat parameter of all, this rank's part of it.

        What was flattened is let go last: the flat parameter's own list names it.
        """
        lines, runs, there = self.lines, Runs(), self.job.run.software.placed
        if there:  # the whole model lies on the device already
            every = [(unit, len(list(group))) for unit, group in groupby(self.units.every())]
            runs += births([(lines.unflat(unit, one), count) for unit, count in every for one in unit.members])
        for unit, group in groupby(self.units.every()):
            apart = [lines.unflat(unit, member) for member in unit.members]
            away = self.how.offload
            shard = lines.sent(unit) if away else lines.shard(unit)
            born = [] if there else [one + 1 for one in apart]
            events = [*born, shard + 1, *(-one - 1 for one in apart)]
            if not self.how.whole:  # what is cut is joined first
                flat = lines.flat(unit)
                events = [*born, flat + 1, shard + 1, -flat - 1, *(-one - 1 for one in apart)]
            events += [-shard - 1] if away else []
            runs.append((tuple(events), len(list(group))))
        return [*runs, *births(self._whole()), *births(self._beside()), *births(buffers_of(self.job))]

    def gradients(self) -> Copies:
        """Reduced gradients that setting them to none frees: none where the optimizer sees views of them."""
        book = self.job.book
        whole = [
            (book.tensor(Account.GRADIENTS, one.name, one.weight.dims, self.job.run.gradients, ACCUMULATE), one.count)
            for one in self._ignored()
        ]
        if self.how.named or self.how.offload:
            return whole
        return whole + [
            (self.lines.gradient(unit), count) for unit, count in self._counts().items() if self._trains(unit)
        ]

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        whole = frozenset(member.weight for unit in self.units.every() if self._trains(unit) for member in unit.members)
        # a flat parameter needs a gradient as a whole: what is frozen in it gets one too
        job = replace(self.job, trained=lambda weight: weight in whole or self.job.trained(weight))
        walked: dict[tuple[bool, bool], tuple[Pieces, tuple[int, ...]]] = {}
        made = self.job.book.lines
        leaves = replace(
            leaves, sums={one: self.lines.summed(one, made[line].dtype) for one, line in leaves.waiting.items()}
        )

        def step(later: bool) -> tuple[Micro, ...]:
            found = []
            if not self.how.named or self.how.offload:
                self.stay = Stay()
            for number, (_, sync) in enumerate(self.schedule.flags(later)):
                flags = (sync, later and not number and self.how.named, not later and not number)
                fresh, short = not (number and self.units.ignored), job.run.alone and (later or number > 0)
                if (fresh, short) not in walked:
                    walked[fresh, short] = walk(job.short if short else job, replace(leaves, fresh=fresh))
                kind = Fsdp1Modules if self.units.spots else Fsdp1
                hooks = kind(self.units, self.lines, self.stay, flags)
                found.append(arranged(*walked[fresh, short], hooks))
            return tuple(found)

        return step


def _flat(weight: Weight, size: int) -> Weight:
    """The weight as a piece of a flat parameter (elements)."""
    return replace(weight, dims=(Axis(Dim.ELEMENTS, size),))
