"""Gradients of a pipeline's stage that wait whole until its last backward, and what follows that."""

from __future__ import annotations

from trainledger.ledger.fsdp2 import Fsdp2
from trainledger.ledger.pipelined_steps import Ended
from trainledger.ledger.units import ROOT_KEY, Key


class Waiting(Fsdp2):
    """A micro-batch after which nothing is reduced and everything stays gathered."""

    def reduce(self, key: Key) -> list[int]:
        """A unit's gradients are added to what waits: in one dtype by autograd, in place. Those that weights' passes
        made since the last pass are there first; autograd adds to them."""
        whole = self.in_order(key, self.arrived.pop(key, []))
        late = self.kept.late.pop(key, [])
        events = [-line - 1 for _, line in whole] if late else []
        whole = late or whole
        if not whole:
            return []
        waiting = self.kept.waiting.pop(key, [])
        added = waiting and self.how.reduce == self.how.compute
        return [*events, *self._accumulate(key, whole, waiting), *(-line - 1 for _, line in whole if added)]

    def last(self, stays: bool) -> Ended:
        """After a stage's last backward: every unit is reduced in turn, the root first. `stays`: what the last one sent
        is there until the next step's first."""
        ending = _Ending(self.units, self.lines, self.kept, (self.fresh, True))
        keys = (ROOT_KEY, *(key for at in sorted(self.units.own) for key in self.units.keys(at)))
        events = tuple(event for key in keys for event in ending.reduce(key))
        held = ending.input if stays else None
        if held is None:
            events = (*events, *ending.ended())
            return Ended(events, events)
        left, ending.input = -held - 1, None
        events = (*events, *ending.ended())
        at = next(number for number, event in enumerate(events) if event > 0)
        return Ended(events, (*events[:at], left, *events[at:]))


class _Ending(Fsdp2):
    """The reductions that end a step."""

    def reduce(self, key: Key) -> list[int]:
        """What weights' passes have left is added first, or is all that there is."""
        late, events = self.kept.late.pop(key, []), list[int]()
        if late and self.kept.waiting.get(key):
            events = [-line - 1 for _, line in late]
        elif late:
            self.kept.waiting[key] = late
        return [*events, *super().reduce(key)]
