"""A backward in two parts: gradients of inputs first, those of weights later, of what is kept for them until then.

A matrix product's node runs without its weights' gradients; what it saved and the gradient that arrived stay. Once the
span of primitives that it belongs to has run, its weights' gradients are made in the order in which they were put off.
Sources: transformer_engine/pytorch/module/_common.py, WeightGradStore (2.3 to 2.18); megatron/core/models/common/
model_chunk_schedule_plan.py, TransformerLayerSchedulePlan (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.ledger.engine import Backward
from trainledger.ledger.tape import EXTERNAL, Code, Prim, Step, Tape

GRADS = (Code.GRAD, Code.VIEW)


class PutOff(NamedTuple):
    """A node whose weights' gradients wait: its primitive with the steps that are left, and the gradients that came."""

    prim: Prim
    incoming: tuple[int, ...]


class Split(Backward):
    """The engine where products' weights wait: those of a span of `tape.split` until its first primitive's node has
    run."""

    __slots__ = ("put_off",)

    def __init__(self, tape: Tape, held: dict[int, int], named: frozenset[int]) -> None:
        super().__init__(tape, held, named)
        self.put_off: list[PutOff] = []

    def run(self, first: int, last: int, handed: Sequence[int] = ()) -> None:
        """Run the nodes of primitives `last - 1` down to `first`, and weights as their spans end."""
        for at in range(last - 1, first - 1, -1):
            super().run(at, at + 1, handed if at == first else ())
            if any(at == start for start, _ in self.tape.split):
                self.weights()

    def weights(self) -> None:
        """Gradients of all weights that wait; what was kept for them dies."""
        for prim, incoming in self.put_off:
            new = super()._function(prim, list(incoming))
            for storage in incoming:
                if storage != EXTERNAL:
                    self.release(storage)
            self.forget(prim)
            for value, storage in new:
                self._accumulate(value, storage)
        self.put_off.clear()

    def _function(self, prim: Prim, incoming: list[int]) -> list[tuple[int, int]]:
        if not self._waits(prim):
            return super()._function(prim, incoming)
        for storage in incoming:
            if storage != EXTERNAL:
                self.refs[storage] += 1
        for storage in (self.tape.store[value] for value in prim.saves):
            if storage in self.held:
                self.held[storage] += 1
        later = tuple(step for step in prim.steps if self._later(prim, step))
        self.put_off.append(PutOff(prim._replace(steps=later), tuple(incoming)))
        return super()._function(prim._replace(steps=tuple(s for s in prim.steps if s not in later)), incoming)

    def _waits(self, prim: Prim) -> bool:
        """Whether a node is a product's within a span."""
        at = next((number for number, one in enumerate(self.tape.prims) if one is prim), EXTERNAL)
        inside = any(first <= at < last for first, last in self.tape.split)
        return inside and any(self._matrix(value) for value in prim.ins)

    def _later(self, prim: Prim, step: Step) -> bool:
        return step.code is Code.CLEAR or (step.code in GRADS and self._matrix(prim.ins[step.at]))

    def _matrix(self, value: int) -> bool:
        weight = self.tape.leaf.get(value)
        return weight is not None and weight.dims[1:] != ()
