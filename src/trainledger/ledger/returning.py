"""A layer that returns its attention's weights beside its result; the model's forward names both until the next layer
has returned.

A reentrant checkpoint holds all that its layer returned until its backward is done, and is handed zeros for the
gradient of weights that nothing read.

Sources: transformers (5.24.0) models/{falcon,bloom,mpt}/modeling_*.py, *Model.forward: `outputs = block(...)`;
torch/utils/checkpoint.py, CheckpointFunction; torch/csrc/autograd/python_function.cpp, PyNode::apply (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from trainledger.ledger.blocks import Walked, Walker
from trainledger.ledger.engine import Backward
from trainledger.ledger.regions import Region
from trainledger.ledger.walk import Events, Forward
from trainledger.lines.line import Account

NAMED = "named with the layer's result until the next layer has returned"


@dataclass(frozen=True, slots=True)
class Returned(Walked):
    """A layer, and lines of what only the model's name for what it returned holds once it ran forward."""

    named: tuple[int, ...] = ()


class Returning(Walker):
    """Walks such a layer. `entered`: a reentrant checkpoint runs it again; `zeros`: the gradient it was handed."""

    __slots__ = ("entered", "zeros")
    entered: bool
    zeros: int

    def plain(
        self,
        keep: frozenset[int] = frozenset(),
        regions: Sequence[Region] = (),
        lasting: frozenset[int] = frozenset(),
        lent: int = 0,
    ) -> Walked:
        """As any layer; the weights outlive the forward."""
        self.entered = False
        walked = super().plain(keep | frozenset(self.piece.tape.returned), regions, lasting, lent)
        storage = self._storage
        return walked if storage in walked.held else _returned(walked, self.lines.of(storage))

    def _recomputed(self, how: tuple[bool, bool], keep: frozenset[int], returned: Sequence[int], lent: int) -> Walked:
        """As any layer; the weights outlive the forward, and a reentrant checkpoint's backward."""
        self.entered, tape = how[0], self.piece.tape
        made = tape.storages[self._storage]
        line = self.book.storage(Account.ACTIVATIONS, f"{self.piece.prefix}{made.name}, returned", made, NAMED)
        self.lines.known[self._storage] = line
        walked = super()._recomputed(how, keep, (*returned, *tape.returned), lent)
        return _returned(walked, line) if walked.again else walked

    @property
    def _storage(self) -> int:
        (weights,) = self.piece.tape.returned
        return self.piece.tape.store[weights]

    def _rerun(self, kept: frozenset[int], stop: int | None = None) -> Forward:
        return super()._rerun(kept | frozenset(self.piece.tape.returned) if self.entered else kept, stop)

    def _back(self, forward: Forward, named: frozenset[int], extra: int = 0) -> Backward:
        if not self.entered:
            return super()._back(forward, named, extra)
        (weights,) = self.piece.tape.returned
        back = super()._back(forward, named | {weights}, extra)
        first = back.first
        self.zeros = back.seed(weights, "zeros for the gradient of what nothing read", 1)
        back.first = first
        back.events.append(self.zeros + 1)
        return back

    def _input_ends(self) -> Events:
        ends = super()._input_ends()
        return [*ends, -self._storage - 1, -self.zeros - 1] if self.entered else ends


def _returned(walked: Walked, line: int) -> Returned:
    own = {one.name: getattr(walked, one.name) for one in fields(Walked)}
    return Returned(**own, named=(line,))


def let_go(layers: Sequence[Walked]) -> tuple[list[Walked], list[int]]:
    """The layers, each of which ends with the death of what the one before returned; and lines of what the last did."""
    found: list[Walked] = []
    longer: dict[tuple[int, tuple[int, ...]], Walked] = {}
    before: tuple[int, ...] = ()
    for one in layers:
        key = (id(one), before)
        if key not in longer:
            ends = tuple(-line - 1 for line in before)
            longer[key] = replace(one, forward=(*one.forward, *ends)) if ends else one
        found.append(longer[key])
        before = one.named if isinstance(one, Returned) else ()
    return found, list(before)
