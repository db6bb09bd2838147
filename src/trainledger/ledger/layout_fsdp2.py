"""The layout of FSDP2: every parameter's rows spread over ranks, units of weights gathered and reduced together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import elements
from trainledger.ledger.arrange import Micro, arranged
from trainledger.ledger.fsdp2 import Fsdp2, Kept
from trainledger.ledger.fsdp2_how import How
from trainledger.ledger.fsdp2_lines import UnitLines
from trainledger.ledger.host import Lines
from trainledger.ledger.layout import Copies, Layout, Schedule, Stored, weights_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.offload import host_lines
from trainledger.ledger.opening import Job
from trainledger.ledger.units import Units
from trainledger.lines.shards import classes
from trainledger.model.program import Weight
from trainledger.model.quantised import Stored as Tensor
from trainledger.model.quantised import beside_parameter, tensors_of

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates


class Sharded(Layout):
    """FSDP2: every parameter's rows are spread over ranks; units of weights are gathered and reduced together."""

    def __init__(self, job: Job, schedule: Schedule, units: Units, how: How, updates: Updates) -> None:
        self.units, self.how, self.updates = units, how, updates
        self.lines = UnitLines(job.book, how)
        sizes = {weight.flat[0].size for _, weight, _ in weights_of(job.model) if job.trained(weight)}
        self.classes = classes(sizes, how.ranks)
        super().__init__(job, schedule, Stored(how.stored, how.stored))
        self.stepped = self.parameters
        if how.offload:  # the optimizer steps on the host
            self.parameters = ()

    def tensors(self, weight: Weight) -> list[tuple[Tensor, int]]:
        """This rank's part of what is a parameter, unless it lies in the host's memory, and in whole what is none."""
        whole, first = tensors_of(weight, self.stored(weight)), len(beside_parameter(weight, self.stored(weight)))
        part = whole[0]._replace(dims=self.how.held(weight), copies=1)
        own = [(part, self.shards)] if len(whole) > first and not self.how.offload else []
        return [*own, *((one, 1) for one in whole[len(whole) - first :])]

    def host(self) -> Lines:
        """Offloaded shards, their reduced gradients and states."""
        if not self.how.offload:
            return ()
        rows = list(weights_of(self.job.model))
        shards = [
            (prefix + weight.name, elements(self.how.held(weight)), self.how.kept(weight), count)
            for prefix, weight, count in rows
            if elements(self.how.held(weight))
        ]
        gradients = [(one.name, elements(one.weight.dims), one.dtype, one.count) for one in self.stepped]
        return host_lines(shards, gradients, self.stepped, self.updates)

    def local(self, weight: Weight) -> Weight:
        """The part of this rank; the first is the fullest."""
        return replace(weight, dims=self.how.own(weight))

    @property
    def rank(self) -> int | None:
        """The rank that is looked at, where a parameter's rows do not divide evenly."""
        return self.how.rank if len(self.classes) > 1 else None

    @property
    def equals(self) -> tuple[tuple[int, int], ...]:
        """Runs of ranks of one shard group that hold the same."""
        return self.classes

    def held(self, weight: Weight) -> Weight:
        """As many rows on every rank as on the fullest."""
        return replace(weight, dims=self.how.held(weight))

    @property
    def reduces(self) -> bool:
        """Always."""
        return True

    @property
    def shards(self) -> int:
        """The ranks of one shard group."""
        return self.how.ranks

    def gradients(self) -> Copies:
        """One tensor of each unit's reduced gradients."""
        if self.how.offload:
            return []
        counts: Counter[int] = Counter()
        for unit in self.units.every():
            size = sum(self.lines.share(one.weight) for one in unit.members if self.job.trained(one.weight))
            if size:
                counts[self.lines.gradient(unit, size)] += 1
        return list(counts.items())

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        own = self.how.reduce == self.how.compute  # gradients that wait are autograd's own
        walked = {True: walk(self.job, leaves)}
        made: dict[tuple[tuple[bool, bool], ...], tuple[Micro, ...]] = {}

        def step(later: bool) -> tuple[Micro, ...]:
            flags, kept, found = tuple(self.schedule.flags(later)), Kept(), []
            if flags in made:  # nothing stays from step to step
                return made[flags]
            for fresh, sync in flags:
                first = not (own and any(kept.waiting.values()))
                if first not in walked:
                    walked[first] = walk(self.job, replace(leaves, fresh=first))
                found.append(arranged(*walked[first], Fsdp2(self.units, self.lines, kept, (fresh, sync))))
            made[flags] = tuple(found)
            return made[flags]

        return step
