"""Bytes of one weight in a checkpoint, and of what the optimizer keeps of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.optimizer_bytes import state_bytes
from trainledger.facts.optimizer_kinds import Kind
from trainledger.ledger.rank import trained_of, updates_of
from trainledger.model.counts import layered
from trainledger.model.program import Model, Weight
from trainledger.model.weights import WITH_NORMS
from trainledger.plan.engines import ZERO
from trainledger.plan.schema import Plan


class Sizes(NamedTuple):
    """A weight, how many such there are, and bytes of each: as it is saved (0: it is not), its master weight, its
    states (without counts of steps). `trained`: whether it learns; some optimizers keep no state."""

    weight: Weight
    copies: int
    saved: int
    master: int
    states: tuple[int, ...]
    trained: bool

    @property
    def kept(self) -> int:
        """Master weight and states."""
        return self.master + sum(self.states)

    @property
    def tensors(self) -> tuple[int, ...]:
        """Bytes of each tensor of it that a checkpoint may hold."""
        return (self.saved, self.master, *self.states)


def dtype_of(plan: Plan, weight: Weight) -> DType:
    """The dtype in which a weight is kept: ZeRO's engine casts every one, an adapter's too."""
    norms = plan.precision.norms
    if plan.parallel.strategy in ZERO and weight.packed is None:
        return DTYPES[plan.precision.weights]
    if weight.dtype is not None:
        return weight.dtype
    return DTYPES[norms if norms and weight.role in WITH_NORMS else plan.precision.weights]


def saved_dtype(plan: Plan, own: DType) -> DType:
    """The dtype in which a weight is saved."""
    return DTYPES[plan.save.dtype] if plan.save and plan.save.dtype else own


def sized(plan: Plan, model: Model) -> Iterator[Sizes]:
    """Every kind of weight; of an adapter's run only what it trains is saved."""
    for weights, count in sized_layers(plan, model):
        yield from (one._replace(copies=count) for one in weights)


def sized_layers(plan: Plan, model: Model) -> Iterator[tuple[tuple[Sizes, ...], int]]:
    """The weights of each kind of layer in the model's order, and how many equal layers there are."""
    size = _sizer(plan)
    for weights, count in layered(model):
        yield tuple(size(weight) for weight in weights), count


def _sizer(plan: Plan) -> Callable[[Weight], Sizes]:
    trained, updates = trained_of(plan), updates_of(plan)
    master = DTYPES[plan.precision.master] if plan.precision.master else None

    def size(weight: Weight) -> Sizes:
        own, learns = dtype_of(plan, weight), trained(weight)
        saved = saved_dtype(plan, own).bytes_of(weight.elements) if plan.adapter is None or learns else 0
        if not learns:
            return Sizes(weight, 1, saved, 0, (), False)
        copied = master.bytes_of(weight.elements) if master is not None and master != own else 0
        made = state_bytes(updates.row, weight.shape, master or own, updates.options(weight))
        states = [one for one in made if one.kind is not Kind.STEP]
        return Sizes(weight, 1, saved, copied, tuple(one.bytes for one in states), True)

    return size
