"""What FSDP2 (fully_shard) allocates around the pieces of a micro-batch: gathers, copies out of them, reductions.

A unit's weights are gathered into one flat output, and each is copied out of it. In forward the output stays until the
next unit has been copied out; in backward it goes at once, and the next unit is gathered while this one runs.
Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py, _fsdp_state.py (v2.4 to v2.13).
Allocated bytes follow the order of these calls; streams move only what is reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.fsdp2_how import Ending
from trainledger.ledger.fsdp2_lines import UnitLines
from trainledger.ledger.units import ROOT_KEY, Key, Unit, UnitHooks, Units
from trainledger.lines.stream import Events
from trainledger.model.program import Weight


class Kept:
    """What stays from one micro-batch to the next: lines of gradients that are not reduced yet, by unit, each with its
    weight, and of those that weights' passes made since the last pass through the layers; units whose weights are
    gathered, and those whose weights are kept for backward over fewer ranks."""

    def __init__(self) -> None:
        self.waiting: dict[Key, list[tuple[Weight, int]]] = {}
        self.late: dict[Key, list[tuple[Weight, int]]] = {}
        self.open: set[Key] = set()
        self.between: set[Key] = set()


class Fsdp2(UnitHooks):
    """One micro-batch. `fresh`: no reduced gradient is there yet; `sync`: gradients are reduced in it."""

    def __init__(self, units: Units, lines: UnitLines, kept: Kept, flags: tuple[bool, bool]) -> None:
        super().__init__(units)
        self.lines, self.how, self.kept = lines, lines.how, kept
        self.fresh, self.sync = flags
        self.pending: set[Key] = set()
        self.held: int | None = None  # the output of the gather that was copied out last in forward
        self.input: int | None = None  # of the reduction that ran last
        self.sums: list[int] = []  # outputs of reductions that all-reduces hold

    # ---- the order of calls

    def ahead(self, at: int) -> Events:
        """Gather and copy out what the piece reads."""
        keys = (*((ROOT_KEY,) if at == 0 else ()), *self.units.keys(at))
        events = [event for key in keys for event in (*self._unshard(key), *self._wait(key, True))]
        if self.how.ahead and at < self.units.last:
            events += self._each(self._unshard, at + 1)
        return tuple(events)

    def inside(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """The head's forward ends, and the model's own before the loss, where a script computes that."""
        shut = tuple(self._each(self._after, at)) if self._shuts(at) else ()
        returned = self._returned() if self._apart(at) else ()
        return {walked.products[0]: (*shut, *returned)} if shut or returned else {}

    def passed(self, at: int) -> Events:
        """Let go of what the piece read."""
        if at == self.units.last:
            return () if self._apart(at) else self._returned()
        stays = self.how.between == 1 or at in self.units.stay
        return () if stays else tuple(self._each(self._after, at))

    def behind(self, at: int) -> Events:
        """Gather what the piece's backward reads, and the next."""
        if at == self.units.last:
            return () if self._apart(at) else tuple(self._entered() + ([] if self._late(at) else self._ahead_of(at)))
        again = self._again(at)
        events = [e for key in self.units.keys(at) for e in (*self._unshard(key), *self._wait(key, again))]
        return tuple(events if again else events + self._ahead_of(at))

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """Where a gather falls inside the piece's backward."""
        product = walked.products[1]
        if self._late(at) and product:  # as the gradient of the logits arrives
            again = [*self._each(self._unshard, at), *self._each(lambda key: self._wait(key, False), at)]
            return {product - 1: (*(self._entered() if self._apart(at) else ()), *again, *self._ahead_of(at))}
        if self._again(at):  # the recompute is a forward of its own, whose end lets its gather go
            return {walked.again: (*self._let_go(), *self._ahead_of(at))}
        return {}

    def ended(self) -> Events:
        """Reduce what is left."""
        events = [*super().ended(), *self._last_input(), *(-line - 1 for line in self.sums)]
        self.sums = []
        return tuple(events)

    def _late(self, at: int) -> bool:
        """Whether it is the head's own module that backward comes to first; a fused loss reads only its weight."""
        return at == self.units.last and (
            (at in self.units.own and self.how.ending is Ending.INSIDE) or self._apart(at)
        )

    def _apart(self, at: int) -> bool:
        """Whether the piece is the head, with a loss outside the model's own forward."""
        return at == self.units.last and self.how.ending is Ending.OUTSIDE

    def _shuts(self, at: int) -> bool:
        """Whether the piece is the head, whose own weights do not stay for backward."""
        return at == self.units.last and self.units.shut and self.how.ending is not Ending.FUSED

    def _returned(self) -> Events:
        """The root's forward ends."""
        return (*([] if self.how.root_keeps else self._after(ROOT_KEY)), *self._let_go())

    def _entered(self) -> list[int]:
        """The root's backward begins."""
        return self._unshard(ROOT_KEY) + self._wait(ROOT_KEY, False)

    def _ahead_of(self, at: int) -> list[int]:
        """What backward needs next is gathered while this piece runs."""
        return self._each(self._unshard, at - 1)

    def _again(self, at: int) -> bool:
        return self.how.reentrant and 0 < at < self.units.last

    def _each(self, run: Callable[[Key], list[int]], at: int) -> list[int]:
        return [event for key in self.units.keys(at) for event in run(key)]

    # ---- one unit

    def _unshard(self, key: Key) -> list[int]:
        """Cast the shards, gather them."""
        unit = self.units.unit(key)
        if unit is None or key in self.kept.open or key in self.pending:
            return []
        self.pending.add(key)
        gather = self.lines.gather(unit) + 1
        between = key in self.kept.between
        if self.how.offload and not between:
            return self._from_host(unit, gather)
        if self.how.offload or self.how.stored == self.how.compute:
            return [gather]
        # one call casts the inputs of a gather, and copies those that were cast before
        cast = (self.lines.recast(unit) if between else self.lines.cast(unit)) + 1
        return [cast, gather, -cast]

    def _from_host(self, unit: Unit, gather: int) -> list[int]:
        """Each shard copied to the device and cast by itself; all are there until the gather has taken them."""
        events, read = list[int](), list[int]()
        for member in unit.members:
            brought = self.lines.brought(member) + 1
            if self.how.stored == self.how.compute or member.weight.packed:
                events.append(brought)
                read.append(brought)
                continue
            read.append(self.lines.cast_of(member) + 1)
            events += [brought, read[-1], -brought]
        return [*events, gather, *(-one for one in read)]

    def _wait(self, key: Key, forward: bool) -> list[int]:
        """Copy every weight out of the gather."""
        unit = self.units.unit(key)
        if unit is None or key in self.kept.open:
            return []
        self.pending.discard(key)
        self.kept.open.add(key)
        made = [line + 1 for line in self.lines.parts(unit)]  # of weights that are no rows of what was gathered
        events = [line + 1 for line in self.lines.copies(unit)]
        events += [*made, *(-one for one in made), *self._forget(key, unit)]
        if forward:  # a local name holds the output before until the call returns
            events += self._let_go()
            self.held = self.lines.gather(unit)
        else:
            events.append(-self.lines.gather(unit) - 1)
        return events

    def _let_go(self) -> list[int]:
        held, self.held = self.held, None
        return [] if held is None else [-held - 1]

    def _after(self, key: Key) -> list[int]:
        """The end of a unit's forward: each weight's part over fewer ranks is cloned, then the whole is freed."""
        unit = self.units.unit(key)
        if not self.how.between or unit is None or key not in self.kept.open:
            return self._reshard(key)
        self.kept.open.discard(key)
        self.kept.between.add(key)
        pairs = zip(self.lines.between(unit), self.lines.copies(unit), strict=True)
        return [event for part, whole in pairs for event in (part + 1, -whole - 1)]

    def _forget(self, key: Key, unit: Unit) -> list[int]:
        """What was kept over fewer ranks is let go of once the weights are whole again."""
        if key not in self.kept.between:
            return []
        self.kept.between.discard(key)
        return [-line - 1 for line in self.lines.between(unit)]

    def _reshard(self, key: Key) -> list[int]:
        unit = self.units.unit(key)
        if unit is None or key not in self.kept.open:
            return []
        self.kept.open.discard(key)
        return [-line - 1 for line in self.lines.copies(unit)]

    def reduce(self, key: Key) -> list[int]:
        """Gradients of a unit: kept whole, or reduced to this rank's part."""
        unit, arrived = self.units.unit(key), self.arrived.pop(key, [])
        waiting = self.kept.waiting.pop(key, [])
        if unit is None or not (arrived or waiting):
            return self._reshard(key)
        whole = self.in_order(key, arrived)
        if not self.sync:
            return self._reshard(key) + self._accumulate(key, whole, waiting)
        events: list[int] = []
        if waiting:  # added to what waits: by autograd itself in one dtype, by FSDP otherwise
            events += [-line - 1 for _, line in whole] if self.how.reduce != self.how.compute else []
            whole = waiting
        cut = [(weight, self.lines.cut(weight, line)) for weight, line in whole]
        events += [e for (_, new), (_, old) in zip(cut, whole, strict=True) if new != old for e in (new + 1, -old - 1)]
        return [*events, *self._reshard(key), *self._last_input(), *self._to_part(unit, cut)]

    def in_order(self, key: Key, arrived: Sequence[Arrived]) -> list[tuple[Weight, int]]:
        """What arrived, in the order of the unit's own list, which FSDP goes through."""
        unit = self.units.unit(key)
        places = {member.weight: at for at, member in enumerate(unit.members)} if unit else {}
        return [(one.weight, one.line) for one in sorted(arrived, key=lambda one: places[one.weight])]

    def _to_part(self, unit: Unit, whole: Sequence[tuple[Weight, int]]) -> list[int]:
        how, lines = self.how, self.lines
        size = sum(lines.share(weight) for weight, _ in whole)
        taken = lines.to_reduce(unit, size)
        turned = [(lines.turned(*one) if how.by_width(one[0]) else one[1], one[1]) for one in whole]
        before = [event for new, old in turned if new != old for event in (new + 1, -old - 1)]
        part = lines.leaving(unit, size) if how.offload else lines.gradient(unit, size)
        named = [turned[-1][0]] if how.reduced.holds_last else []  # where a loop over all of them ended
        events = [*before, taken + 1, *(-new - 1 for new, _ in turned if new not in named)]
        if how.reduce != lines.summed(unit):
            out = lines.reduced(unit, size)
            events += [out + 1, part + 1]
            if how.reduced.holds_output:
                self.sums.append(out)
            else:
                events.append(-out - 1)
        else:
            events.append(part + 1)
        if self.how.offload or not self.fresh:  # copied to the host, or added to what is there
            events.append(-part - 1)
        events += [-line - 1 for line in named]
        if how.reduced.holds_input:
            self.input = taken
            return events
        return [*events, -taken - 1]

    def _last_input(self) -> list[int]:
        held, self.input = self.input, None
        return [] if held is None else [-held - 1]

    def _accumulate(self, key: Key, whole: list[tuple[Weight, int]], waiting: list[tuple[Weight, int]]) -> list[int]:
        """Without a reduction gradients stay whole, in the dtype of reductions."""
        if self.how.reduce == self.how.compute:  # autograd added to those that wait
            self.kept.waiting[key] = waiting or whole
            return []
        if waiting:
            self.kept.waiting[key] = waiting
            return [-line - 1 for _, line in whole]
        made = [(weight, self.lines.unreduced(weight)) for weight, _ in whole]
        self.kept.waiting[key] = made
        return [e for (_, new), (_, old) in zip(made, whole, strict=True) for e in (new + 1, -old - 1)]
