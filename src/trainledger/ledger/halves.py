"""A backward in two passes, as torch.distributed.pipelining splits it: gradients of inputs, and weights' later.

The first pass keeps the graph. It computes nothing for weights, lets go of nothing that was saved, and holds the
gradients that reach each node which reads a weight. Once it is done, what nodes behind the last of these saved goes
with the graph's end. The second pass takes weights in their order: each such node makes its gradient out of what is
held and lets go; all that other nodes saved goes when the last one has run.
Source: torch/distributed/pipelining/_backward.py, stage_backward_input, stage_backward_weight (v2.6 to v2.13).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from trainledger.ledger.blocks import Behind, Walked, Walker
from trainledger.ledger.engine import Backward
from trainledger.ledger.regions import Region
from trainledger.ledger.tape import EXTERNAL, Code, Prim, Step, Tape
from trainledger.ledger.walk import Forward
from trainledger.model.program import Weight

MADE = (Code.GRAD, Code.VIEW, Code.PASS, Code.SEEN, Code.GIVE, Code.TURN)
INSIDE = (Code.BORN, Code.DEAD)


class Half(StrEnum):
    """Which pass of a backward is walked."""

    BOTH = "both"
    INPUTS = "inputs"
    WEIGHTS = "weights"


class Captured(NamedTuple):
    """A node that reads a weight: its place on the tape, and the gradients that are held for it."""

    at: int
    incoming: tuple[int, ...]


class Halves(Backward):
    """The engine of both passes. `span`: the events of the pass that is asked for; what is let go of once the stage's
    pass has ended comes behind them."""

    __slots__ = ("captured", "done", "flows", "half", "order", "span")

    def __init__(self, tape: Tape, held: dict[int, int], named: frozenset[int], half: Half, source: int) -> None:
        super().__init__(tape, held, named)
        self.half = half
        self.flows = _flows(tape, source)
        self.captured: list[Captured] = []
        self.done: set[int] = set()
        self.span = range(0)
        self.order: dict[Weight, int] = {}  # of the stage's weights, as its module lists them

    def run(self, first: int, last: int, handed: Sequence[int] = ()) -> None:
        """Both passes over these primitives, the second one only where it is asked for."""
        for at in range(last - 1, first - 1, -1):
            self._inputs(at)
        start = 0
        if self.half is Half.WEIGHTS:
            start = len(self.events)
            for one in sorted(self.captured, key=self._place):
                self._weights(one)
            self.span = range(start, len(self.events))
            self._let_go(range(len(self.tape.prims)))
            return
        self.span = range(len(self.events))
        kept = self._upstream()
        self._let_go(at for at in range(len(self.tape.prims)) if at not in kept)

    def _inputs(self, at: int) -> None:
        """A node of the first pass; one that leads to weights alone is left for the second."""
        prim, leaves = self.tape.prims[at], self.tape.leaves
        incoming = [EXTERNAL if value in leaves else self.grads.pop(value, EXTERNAL) for value in prim.outs]
        arrived = [storage for storage in incoming if storage != EXTERNAL]
        if not arrived:
            return
        if self._reads_weight(prim):
            for storage in arrived:
                self.refs[storage] += 1
            self.captured.append(Captured(at, tuple(incoming)))
        steps = tuple(step for step in prim.steps if self._to_input(prim, step))
        new = self._function(prim._replace(steps=steps), incoming)
        for storage in arrived:
            self.release(storage)
        for value, storage in new:
            self._accumulate(value, storage)

    def _weights(self, one: Captured) -> None:
        """A node of the second pass, and those between it and its weights."""
        prim, incoming = self.tape.prims[one.at], list(one.incoming)
        steps = tuple(step for step in prim.steps if step.code in INSIDE or not self._to_input(prim, step))
        new = self._function(prim._replace(steps=steps), incoming)
        self._let_go((one.at,))
        for value, storage in new:
            self._accumulate(value, storage)
        for at in range(one.at - 1, -1, -1):
            if any(value in self.grads for value in self.tape.prims[at].outs) and not self._flowing(at):
                self.done.add(at)
                self._node(self.tape.prims[at], ())
        for storage in incoming:
            if storage != EXTERNAL:
                self.release(storage)

    def _place(self, one: Captured) -> int:
        """Where the first of a node's weights stands among the stage's."""
        weights = (self.tape.leaf.get(value) for value in self.tape.prims[one.at].ins)
        found = [self.order[weight] for weight in weights if weight in self.order]
        return min(found, default=len(self.order) + one.at)

    def _let_go(self, places: Iterable[int]) -> None:
        for at in places:
            if at not in self.done:
                self.done.add(at)
                self.forget(self.tape.prims[at])

    def _upstream(self) -> set[int]:
        """The nodes that the ones which read weights lead to, these included."""
        values, found = set[int](), {one.at for one in self.captured}
        for at in range(len(self.tape.prims) - 1, -1, -1):
            prim = self.tape.prims[at]
            if at in found or values.intersection(prim.outs):
                found.add(at)
                values.update(prim.ins)
        return found

    def _flowing(self, at: int) -> bool:
        return any(value in self.flows for value in self.tape.prims[at].ins)

    def _reads_weight(self, prim: Prim) -> bool:
        reads = [value for value in prim.ins if self.tape.grad[value]]
        return any(value in self.flows for value in reads) and any(value not in self.flows for value in reads)

    def _to_input(self, prim: Prim, step: Step) -> bool:
        """Whether a step of a node's function makes the gradient of what depends on the input, or is inside it."""
        if step.code in MADE:
            return prim.ins[step.at] in self.flows or not self.tape.grad[prim.ins[step.at]]
        return step.code in INSIDE


def _flows(tape: Tape, source: int) -> frozenset[int]:
    """The values that depend on the input and need a gradient."""
    found = {source}
    for prim in tape.prims:
        if any(value in found for value in prim.ins):
            found.update(value for value in prim.outs if tape.grad[value])
    return frozenset(found)


class HalfWalker(Walker):
    """A piece walked under one pass: its backward is that pass alone, and `loose` what goes once the stage's pass has
    ended: after the first one, where no weight stands behind the piece; after the second one, all that is left."""

    __slots__ = ("after", "half", "order")

    def plain(
        self,
        keep: frozenset[int] = frozenset(),
        regions: Sequence[Region] = (),
        lasting: frozenset[int] = frozenset(),
        lent: int = 0,
    ) -> Walked:
        """No recompute."""
        made = super().plain(keep, (), lasting, lent)
        return replace(made, loose=self.after)

    def of(self, half: Half, order: Sequence[Weight]) -> HalfWalker:
        """The walker of this pass; `order`: the piece's weights as its module lists them."""
        self.half, self.after = half, tuple[int, ...]()
        self.order = {weight: at for at, weight in enumerate(order)}
        return self

    def _back(self, forward: Forward, named: frozenset[int], extra: int = 0) -> Backward:
        tape = self.piece.tape
        still = frozenset(tape.store[value] for value in named)
        back = Halves(tape, dict(forward.held), still, self.half, self.piece.source)
        back.order = self.order
        back.leaf = self.leaf(back)
        back.seed(self.piece.target, "incoming gradient", extra)
        return back

    def _backward(self, back: Backward, started: int, again: frozenset[int] = frozenset()) -> Behind:
        assert isinstance(back, Halves)
        made, span = super()._backward(back, started, again), back.span
        self.after = made.events[span.stop :]
        arrived = tuple(one._replace(at=one.at - span.start) for one in made.arrived if one.at >= span.start)
        first = made.product - span.start if span.start < made.product <= span.stop else 0
        return made._replace(events=made.events[span.start : span.stop], arrived=arrived, product=first)
