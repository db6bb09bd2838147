"""What FSDP1 (FullyShardedDataParallel) allocates around the pieces of a micro-batch: flat weights, flat gradients.

A unit's weights are one flat parameter; its gather is one flat tensor that they view, and the unit's gradients are
joined in one before they are reduced.
Source: torch/distributed/fsdp/_runtime_utils.py, _flat_param.py (v2.4 to v2.13). Allocated bytes follow the order of
these calls; streams move only what is reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.fsdp1_lines import FlatLines
from trainledger.ledger.units import ROOT_KEY, Key, Unit, UnitHooks, Units
from trainledger.lines.stream import Events


class Stay:
    """What stays from one micro-batch to the next: whole flat gradients, by unit (lines); reduced ones, by unit; units
    whose weights are gathered."""

    def __init__(self) -> None:
        self.waiting: dict[Key, int] = {}
        self.reduced: dict[Key, int] = {}
        self.open: set[Key] = set()


class Fsdp1(UnitHooks):
    """One micro-batch. `sync`: gradients are reduced in it; `anew`: the reduced ones of the step before go first;
    `first`: of all."""

    def __init__(self, units: Units, lines: FlatLines, stay: Stay, flags: tuple[bool, bool, bool]) -> None:
        super().__init__(units)
        self.lines, self.how, self.stay = lines, lines.how, stay
        self.sync, self.anew, self.first = flags
        self.held: list[int] = []

    # ---- the order of calls

    def ahead(self, at: int) -> Events:
        """Gather what the piece reads."""
        events = [*self._begun(), *self._unshard(ROOT_KEY)] if at == 0 else []
        events += self._each(self._unshard, at)
        return (*events, *(self._each(self._unshard, at + 1) if self.how.forward else ()))

    def _begun(self) -> list[int]:
        """Every unit's storages are laid out, once. Reduced gradients of the step before are set to none only now, for
        the optimizer sees views of them."""
        if self.first:
            root = (self.units.root,) if self.units.root else ()
            units = [*root, *(unit for unit in self.units.every() if unit is not self.units.root)]
            return [event for unit in units for line in self.lines.laid_out(unit) for event in (line + 1, -line - 1)]
        gone = [-line - 1 for line in self.stay.reduced.values()] if self.anew else []
        if self.anew:
            self.stay.reduced.clear()
        return gone

    def passed(self, at: int) -> Events:
        """Let go of what the piece read."""
        own = [] if self.how.keeps else self._each(self._reshard, at)
        return (*own, *(self._reshard(ROOT_KEY) if at == self.units.last and self.how.whole else ()))

    def behind(self, at: int) -> Events:
        """Gather what the piece's backward reads, and the next."""
        root = self._unshard(ROOT_KEY) if at == self.units.last else []
        return (*root, *self._each(self._unshard, at), *(self._next(at) if self.how.early else ()))

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """A layer that is recomputed is let go and gathered once more."""
        if self.how.reentrant and 0 < at < self.units.last:  # the recompute is a forward of its own
            events = (*self._each(self._reshard, at), *self._each(self._unshard, at))
            return {walked.again: events} if events else {}
        return {}

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> Events:
        """Deal with a layer's gradients; a frozen unit's hook holds its input, and with it the gradient of that."""
        events = super().done(at, arrived)
        frozen = any(not one.tuned for one in (unit.members[0].weight for unit in self.units.own.get(at, ())))
        if self.how.hidden is None or not frozen or not 0 < at < self.units.last:
            return events
        held = [self.lines.hidden(self.how.hidden, "input of a layer")]
        if at + 1 < self.units.last:  # what this layer was handed is the gradient of the next one's input
            held.append(self.lines.hidden(self.how.hidden, "gradient of the input of a layer"))
        self.held += held
        return (*events, *(line + 1 for line in held))

    def ended(self) -> Events:
        """Reduce what is left; what hooks held goes as they are removed."""
        held, self.held = self.held, []
        events = [*super().ended(), *(-line - 1 for line in held)]
        if self.how.offload:  # copied to the host as they were reduced, and named until now
            events += [-line - 1 for line in self.stay.reduced.values()]
            self.stay.reduced.clear()
        return tuple(events)

    def _each(self, run: Callable[[Key], list[int]], at: int) -> list[int]:
        return [event for key in self.units.keys(at) for event in run(key)]

    # ---- one unit

    def _next(self, at: int) -> list[int]:
        return [] if self.how.reentrant else self._each(self._unshard, at - 1)

    def _left(self, key: Key) -> list[int]:
        """What is gathered ahead once a unit's weights went in backward."""
        return self._next(key[0]) if self.how.late else []

    def _unshard(self, key: Key) -> list[int]:
        """Cast the shard, gather it; what every rank stores whole is only cast."""
        unit, how = self.units.unit(key), self.how
        if unit is None or key in self.stay.open:
            return []
        self.stay.open.add(key)
        whole = self.lines.whole(unit) + 1
        same = how.kept(unit) == how.read(unit)
        brought = self.lines.brought(unit) + 1 if how.offload else 0
        if same:
            return [brought, whole, -brought] if brought and not how.whole else [] if self._stores(unit) else [whole]
        copied = [brought, -brought] if brought else []
        if how.whole:
            return [whole, *copied]
        cast = self.lines.cast(unit) + 1
        return [cast, *copied, whole, -cast]

    def _stores(self, unit: Unit) -> bool:
        """Whether what is read is what the rank stores."""
        return self.how.whole and self.how.kept(unit) == self.how.read(unit) and not self.how.offload

    def _reshard(self, key: Key) -> list[int]:
        unit = self.units.unit(key)
        if unit is None or key not in self.stay.open:
            return []
        self.stay.open.discard(key)
        return [] if self._stores(unit) else [-self.lines.whole(unit) - 1]

    def reduce(self, key: Key) -> list[int]:
        """Join a unit's gradients, keep them whole or reduce them to this rank's part."""
        unit, arrived = self.units.unit(key), self.arrived.pop(key, [])
        if unit is None or not arrived:
            return self._reshard(key)
        flat = self.lines.joined(unit)
        events = [flat + 1, *(-one.line - 1 for one in arrived)]
        more = self.sync and self.how.whole and key in self.stay.reduced and key not in self.stay.waiting
        if key in self.stay.waiting or more:
            events.append(-flat - 1)
        if self.sync or not self.how.keeps:
            events += self._reshard(key)
        events += self._left(key)
        if not self.sync:
            held = [] if key in self.stay.waiting else self.lines.blank(unit)
            self.stay.waiting[key] = flat
            return events + [event for line in held for event in (line + 1, -line - 1)]
        self.stay.waiting.pop(key, None)
        return events + (self._once_more(unit) if more else self._to_part(unit, key, flat))

    def _once_more(self, unit: Unit) -> list[int]:
        """Gradients that every rank keeps whole, to which autograd added others: all of them are reduced again."""
        how, lines = self.how, self.lines
        if how.sums(unit) == how.kept(unit):
            return []
        cast, kept = lines.to_reduce(unit) + 1, lines.gradient(unit) + 1
        return [cast, kept, -cast, -kept]

    def _to_part(self, unit: Unit, key: Key, flat: int) -> list[int]:
        how, lines = self.how, self.lines
        used, events, reduce = [flat], list[int](), how.sums(unit)
        kept = lines.gradient(unit)
        if how.stays(unit):
            events += [-used.pop() - 1, kept + 1]
        elif how.whole and reduce == how.kept(unit):  # their cast is what stays
            events.append(kept + 1)
        else:
            events += self._reduced(unit, used, kept)
        if key in self.stay.reduced:
            events.append(-kept - 1)
        self.stay.reduced[key] = kept
        return events + [-line - 1 for line in reversed(used)]

    def _reduced(self, unit: Unit, used: list[int], kept: int) -> list[int]:
        """Gradients cast for the reduction and padded for it (two more lines that are `used`), reduced, and cast to the
        shards' dtype."""
        how, lines, events = self.how, self.lines, list[int]()
        if how.sums(unit) != how.read(unit):
            used.append(lines.to_reduce(unit))
            events.append(used[-1] + 1)
        if not how.whole and how.filled(unit) < how.size(unit):
            used.insert(1, lines.padded(unit))  # of which the cast goes first
            events.append(used[1] + 1)
        if how.whole or how.sums(unit) == how.kept(unit):
            return [*events, kept + 1]
        out = lines.reduced(unit)
        return [*events, out + 1, kept + 1, -out - 1]
