"""The layout of FSDP1: a unit's weights as one flat parameter, of which every rank holds an equal part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.sharding import FSDP1
from trainledger.ledger.arrange import Micro, arranged
from trainledger.ledger.book import Spread
from trainledger.ledger.fsdp1 import Flat, Fsdp1, Stay, flat_gradient
from trainledger.ledger.layout import Copies, Layout, Schedule, buffers_of, weights_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import Job, walk
from trainledger.ledger.units import Unit, Units
from trainledger.ledger.updates import Parameter
from trainledger.lines.line import Account
from trainledger.model.program import Weight

FLAT = "flat parameter"


class FlatSharded(Layout):
    """FSDP1, sharded or (with one rank a group) whole."""

    def __init__(self, job: Job, schedule: Schedule, units: Units, how: Flat) -> None:
        self.units, self.how = units, how
        self.stay = Stay()
        super().__init__(job, schedule, None)

    def parameters_of(self) -> tuple[Parameter, ...]:
        """What the optimizer sees: each parameter's piece of this rank's part, or that part as one."""
        return self._pieces() if self.how.named else self._flats()

    def _pieces(self) -> tuple[Parameter, ...]:
        sizes = {unit: dict(self.how.pieces(unit)) for unit in self._counts()}
        by_prefix: dict[tuple[str, Weight], int] = {}
        for unit, pieces in sizes.items():
            by_prefix |= {(unit.prefix, weight): size for weight, size in pieces.items()}
        return tuple(
            Parameter(_flat(weight, by_prefix[prefix, weight]), prefix + weight.name, self.how.stored, count)
            for prefix, weight, count in weights_of(self.job.model)
            if (prefix, weight) in by_prefix and self.job.trained(weight)
        )

    def _flats(self) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(_flat(unit.weights[0], self.how.part(unit)), f"{FLAT} of {unit.name}", self.how.stored, count)
            for unit, count in self._counts().items()
            if self._trains(unit)
        )

    def _counts(self) -> Counter[Unit]:
        """Every unit in the order in which FSDP wraps it, the root last, with how many are equal."""
        around = [self.units.root] if self.units.root else []
        return Counter([*(self.units.own[at] for at in sorted(self.units.own)), *around])

    def _trains(self, unit: Unit) -> bool:
        return any(self.job.trained(weight) for weight in unit.weights)

    def weights(self) -> Copies:
        """The flat parameters' parts, and buffers."""
        book, lines = self.job.book, Copies()
        for unit, count in self._counts().items():
            dims = (Axis(Dim.ELEMENTS, self.how.part(unit)),)
            name, spread = f"{FLAT} of {unit.name}", Spread(self.how.ranks)
            lines.append((book.tensor(Account.WEIGHTS, name, dims, self.how.stored, FSDP1.source, spread), count))
        return lines + buffers_of(self.job)

    def gradients(self) -> Copies:
        """Reduced gradients that setting them to none frees: none where the optimizer sees views of them."""
        if self.how.named:
            return []
        counts = self._counts().items()
        return [(flat_gradient(self.job.book, unit, self.how), count) for unit, count in counts if self._trains(unit)]

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        walked = walk(self.job, leaves)

        def step(later: bool) -> tuple[Micro, ...]:
            found = []
            if not self.how.named:
                self.stay = Stay()
            for number, (_, sync) in enumerate(self.schedule.flags(later)):
                flags = (sync, later and not number and self.how.named)
                found.append(arranged(*walked, Fsdp1(self.job.book, self.units, self.how, self.stay, flags)))
            return tuple(found)

        return step


def _flat(weight: Weight, size: int) -> Weight:
    """The weight as a piece of a flat parameter (elements)."""
    return replace(weight, dims=(Axis(Dim.ELEMENTS, size),))
