"""What happens to a parameter's gradient as it arrives: kept, added to the one there, held for a second use, copied.

Source: torch/csrc/autograd/functions/accumulate_grad.h and input_buffer.cpp (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainledger.facts.dtypes import DType
from trainledger.ledger.engine import Arrival, Backward, LeafRule
from trainledger.model.program import Weight


def keeps_own(weight: Weight) -> bool:
    """Whether a weight's gradient keeps the dtype in which it arrives: of a module trained whole beside an adapter, and
    of a weight with a dtype of its own (a router in fp32)."""
    return weight.tuned is (weight.dtype is None)


@dataclass(frozen=True, slots=True)
class Leaves:
    """The rule of gradients. `fresh`: there is none yet, the new one is kept; otherwise it is added and dies.

    `dtype`: that of the gradients that stay. `waiting`: lines of gradients of weights that are read twice, whose
    first gradient waits for the second. `viewed`: that first one is a view of a product, so that the sum is a third
    tensor; `sums`: their lines, where these are not made on the stream of compute. `copied`: a bucket takes the
    gradient's place (DistributedDataParallel, gradient_as_bucket_view), or the optimizer steps at once and lets it go;
    then `stepping` temporaries of the parameter's size are made first. `unreduced`: a strategy takes them whole and
    leaves a rank's part. `late`: buckets take gradients in a step's last micro-batch only; `joins`: in this one, and
    with it those that waited whole.
    """

    fresh: bool
    dtype: DType
    waiting: Mapping[Weight, int]
    viewed: bool = False
    copied: bool = False
    stepping: int = 0
    unreduced: bool = False
    late: bool = False
    joins: bool = False
    sums: Mapping[Weight, int] = field(default_factory=dict)

    def first(self, back: Backward) -> LeafRule:
        """The rule of the pieces that run backward first: gradients of weights read twice wait."""

        back.unreduced = self.unreduced

        def rule(weight: Weight, storage: int) -> list[int]:
            if weight not in self.waiting:
                return self._settle(back, weight, storage)
            back.given[storage] = self.waiting[weight]
            return []

        return rule

    def last(self, back: Backward) -> LeafRule:
        """The rule of the piece that runs backward last: waiting gradients are joined."""
        back.unreduced = self.unreduced

        def rule(weight: Weight, storage: int) -> list[int]:
            if weight not in self.waiting:
                return self._settle(back, weight, storage)
            dtype = back.tape.storages[storage].dtype
            waited = back.foreign(weight.dims, dtype, f"first gradient of {weight.name}")
            back.given[waited] = self.waiting[weight]
            if not self.viewed:
                return [-storage - 1, *self._settle(back, weight, waited)]
            total = back.foreign(weight.dims, dtype, f"sum of gradients of {weight.name}")
            if weight in self.sums:
                back.given[total] = self.sums[weight]
            return [total + 1, -waited - 1, -storage - 1, *self._settle(back, weight, total)]

        return rule

    def of(self, number: int, count: int, fresh: bool) -> Leaves:
        """The rule in micro-batch `number` of `count` of a step in which there is no gradient at first (`fresh`: nor in
        this one)."""
        if not self.late or count == 1:
            return replace(self, fresh=fresh)
        last = number == count - 1
        return replace(self, fresh=fresh, copied=last, joins=last)

    def _waited(self, back: Backward, weight: Weight) -> list[int]:
        """The end of a gradient that was whole since the step's first micro-batch."""
        kept = back.foreign(weight.slope, self.dtype, weight.name)
        back.owned[kept] = weight
        return [-kept - 1]

    def _settle(self, back: Backward, weight: Weight, storage: int) -> list[int]:
        """A gradient that is whole: it stays (cast where it is kept in another dtype), or is added and dies."""
        back.arrived.append(Arrival(weight, storage, len(back.events)))
        if self.copied or not self.fresh:
            made = [
                back.foreign(weight.slope, back.tape.storages[storage].dtype, f"step of {weight.name}")
                for _ in range(self.stepping)
            ]
            waited = self._waited(back, weight) if self.joins else []
            return [*(one + 1 for one in made), *(-one - 1 for one in made), *waited, -storage - 1]
        own = back.tape.storages[storage].dtype
        dtype = own if keeps_own(weight) else self.dtype
        if own == dtype and storage not in back.given:
            back.owned[storage] = weight
            return []
        if own == dtype:
            return []
        kept = back.foreign(weight.slope, dtype, weight.name)
        back.arrived[-1] = back.arrived[-1]._replace(storage=kept)
        back.owned[kept] = weight
        return [kept + 1, -storage - 1]
