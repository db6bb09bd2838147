"""What DeepSpeed's ZeRO-3 allocates around modules and gradients: gathers, fetches ahead, the reductions' flat copies.

Every call of a module is a place where parameters are gathered, fetched ahead and let go, also of modules without
parameters of their own, forward, in a forward that runs again, and backward.
Source: deepspeed/runtime/zero/parameter_offload.py, stage3.py, partitioned_param_coordinator.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainledger.facts.deepspeed import DEEPSPEED, FREED_EMBEDDING
from trainledger.facts.dtypes import FP32, FP64
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.book import Book
from trainledger.ledger.registered import Slot
from trainledger.ledger.visits import Call, Visit
from trainledger.ledger.woven import Woven
from trainledger.ledger.zero import Zero, reduction
from trainledger.ledger.zero3_fetch import Coordinator, Mode
from trainledger.lines.shards import rows_of
from trainledger.lines.stream import Events
from trainledger.model.program import Model, Weight

REDUCTION = 1  # the stream of reductions that overlap
ROOT = ""


class Stop(NamedTuple):
    """A visit in its place: the path of its module, the parameters that this reads (none where it is no module)."""

    visit: Visit
    path: tuple[str, ...]
    own: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Modules:
    """Where modules stand: parameters by piece and weight; for each piece the paths that its modules lie under; how
    often the model makes rotary tables; parameters that the root reads itself, past their own module. `stops`: those
    of pieces that were asked for, forward and backward; `visits`: those of pieces as they were walked, which equal
    layers share."""

    slots: Mapping[tuple[int, Weight], Slot]
    bases: tuple[tuple[str, ...], ...]
    rotary: int
    external: tuple[Slot, ...]
    stops: dict[tuple[int, bool], tuple[Stop, ...]] = field(default_factory=dict)
    visits: dict[tuple[int, bool], tuple[Visit, ...]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number of the last piece, the head with its loss."""
        return len(self.bases) - 1

    def slot(self, at: int, weight: Weight) -> Slot | None:
        """The parameter of a weight in this piece; what is shared belongs to the embedding."""
        return self.slots.get((at, weight)) or self.slots.get((0, weight))

    def visited(self, at: int, walked: Walked, backward: bool) -> tuple[Stop, ...]:
        """The visits of a piece, which every micro-batch walks alike."""
        if (at, backward) not in self.stops:
            shared = (id(walked), backward)
            if shared not in self.visits:
                self.visits[shared] = walked.visits.backward if backward else walked.visits.forward
            places = {id(call): self._place(at, call) for call in walked.visits.calls}
            found = tuple(Stop(visit, *places[id(visit.call)]) for visit in self.visits[shared])
            self.stops[at, backward] = found
        return self.stops[at, backward]

    def _place(self, at: int, call: Call) -> tuple[tuple[str, ...], tuple[Slot, ...]]:
        if not call.module:
            return (), ()
        base, inner = self.bases[at], _paths(call.name.rpartition(".")[0])
        inside = inner if base == (ROOT,) else [f"{base[-1]} {path}" for path in inner]
        own = (self.slot(at, weight) for weight in call.weights)
        return (*base, *inside), tuple(slot for slot in own if slot is not None)


def modules_of(model: Model, slots: Sequence[Slot], closing: Walked) -> Modules:
    """The modules of a model whose closing piece was walked so."""
    layers = sorted((index, number) for number, block in enumerate(model.blocks) for index in block.layers)
    bases: list[tuple[str, ...]] = [(ROOT,)]
    for at, (_, number) in enumerate(layers, 1):
        above, _, _ = model.blocks[number].name.rpartition(".")
        bases.append((ROOT, *_paths(above), f"layer {at}"))
    bases.append((ROOT,))
    by_key = {(slot.at, slot.weight): slot for slot in slots}
    called = {weight for visit in closing.visits.forward if visit.call.module for weight in visit.call.weights}
    read = [getattr(op.spec, "weight", None) for op in model.head.ops]
    past = [weight for weight in read if weight is not None and weight not in called]
    found = [by_key.get((len(bases) - 1, weight)) or by_key.get((0, weight)) for weight in past]
    rotary = len(model.rotary.sets) if model.rotary else 0
    return Modules(by_key, tuple(bases), rotary, tuple(slot for slot in found if slot is not None))


def _saving(backward: Sequence[Stop]) -> frozenset[Call]:
    """Calls of a forward that keep a view of their weight until their backward: those that do not run again in it."""
    back = {stop.visit.call for stop in backward if stop.visit.call.views}
    return frozenset(back - {stop.visit.call for stop in backward if stop.visit.again})


def _paths(name: str) -> list[str]:
    """A dotted path and all above it, the highest first."""
    parts = name.split(".") if name else []
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


class Zero3(Hooks):
    """One micro-batch."""

    def __init__(self, book: Book, how: Zero, modules: Modules, order: Coordinator) -> None:
        self.book, self.how, self.modules, self.order = book, how, modules, order
        self.open: tuple[str, ...] = ()
        self.saving: frozenset[Call] = frozenset()  # whose nodes hold their weight as they gathered it
        self.left: list[Slot] = []  # gathered in backward by a module whose backward does not return
        self.bucket: list[Slot] = []
        self.filled = 0
        self.whole: dict[Slot, int] = {}  # gradients that were not copied into the bucket (lines)
        self.back: dict[int, list[int]] = {}  # events of a part that comes back from the host, by its elements

    # ---- the order of calls

    def ahead(self, at: int) -> Events:
        """A micro-batch begins."""
        return tuple(self.order.start(self.modules.external)) if at == 0 else ()

    def inside(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """Every call of a module, forward."""
        events, stops = Woven(), self.modules.visited(at, walked, False)
        self.saving = _saving(self.modules.visited(at, walked, True)) if self.order.how.saved else frozenset()
        for stop in stops:
            events.add(stop.visit.at, self._visit(at, stop, False))
        if at == self.modules.last and self.order.mode is Mode.RECORDS and self.modules.external:
            events.add(stops[-1].visit.at, self._found())
        return events.found

    def passed(self, at: int) -> Events:
        """The root returns."""
        return tuple(self.order.leave(self.modules.external, True)) if at == self.modules.last else ()

    def behind(self, at: int) -> Events:
        """Backward begins at the root."""
        if at == self.modules.last:
            self.open = ()
        return ()

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """Every call of a module, backward, and each gradient as it comes: before its module's backward returns."""
        events, waiting = Woven(), deque(walked.arrived)
        self.saving = frozenset()
        outer = self.modules.bases[at][:-1]
        for stop in self.modules.visited(at, walked, True):
            visit = stop.visit
            while waiting and waiting[0].at <= (visit.at if visit.done else visit.at - 1):
                events.add(waiting[0].at, self._hook(at, waiting.popleft()))
            if visit.again:
                open_, self.open = self.open, outer
                events.add(visit.at, self._visit(at, stop, False))
                outer, self.open = self.open, open_
            else:
                events.add(visit.at, self._visit(at, stop, True))
        for one in waiting:
            events.add(one.at, self._hook(at, one))
        return events.found

    def ended(self) -> Events:
        """The rest is reduced; newer releases let go of what no module's backward did."""
        freed = self.left if FREED_EMBEDDING.holds(self.how.version) else []
        return (*self._reduce(), *self.order.let_go(freed))

    # ---- modules

    def _visit(self, at: int, stop: Stop, backward: bool) -> list[int]:
        visit, path, own = stop
        if not path:
            return []
        if not visit.done:
            entered = [] if path == self.open else self._entered(at, path, backward)
            return entered + self.order.fetch(own, backward)
        call = visit.call
        if backward:
            return [*self._forgotten(own), *self._returned(call, own)]
        if call in self.saving or (visit.again and call.views and self.order.how.remade):
            self.order.gathered.save(own[0])
        return self.order.leave(own, True)

    def _returned(self, call: Call, own: tuple[Slot, ...]) -> list[int]:
        """A module's backward is over; it does not return where no input needs a gradient."""
        if call.passes:
            return self.order.leave(own, False)
        self.left += own
        return []

    def _forgotten(self, slots: Iterable[Slot]) -> list[int]:
        return [event for slot in slots for event in self.order.gathered.forget(slot)]

    def _entered(self, at: int, path: tuple[str, ...], backward: bool) -> list[int]:
        """Modules around a call that were not entered yet; the root may read parameters itself."""
        base = self.modules.bases[at]
        events: list[int] = []
        for one in path:
            if one in self.open:
                continue
            if one == base[-1] and at == 1 and not backward and not self.left:
                for _ in range(self.modules.rotary):
                    events += self.order.fetch(())
            own = () if one != ROOT or (self.order.mode is Mode.RECORDS and not backward) else self.modules.external
            events += self.order.fetch(own, backward)
            if backward and own:
                self.left += own
        self.open = path
        return events

    def _found(self) -> list[int]:
        """A parameter that is read past its module, for the first time: gathered as it is read."""
        return self.order.gathered.plainly(self.modules.external)

    # ---- gradients

    def _hook(self, at: int, one: Arrived) -> list[int]:
        """A gradient is copied into the bucket, which is reduced first where it would overflow; larger ones stay."""
        slot = self.modules.slot(at, one.weight)
        if slot is None:
            return []
        events = self._reduce() if self.bucket and self.filled + slot.size > self.how.bucket else []
        if self.how.contiguous and self.filled + slot.size <= self.how.bucket:
            events.append(-one.line - 1)
        else:
            self.whole[slot] = one.line
        self.bucket.append(slot)
        self.filled += slot.size
        return events

    def _reduce(self) -> list[int]:
        """Reduce-scatter the bucket: in place where one gradient divides evenly, else in a padded copy of all."""
        bucket, how = self.bucket, self.how
        if not bucket:
            return []
        made: list[int] = []
        sizes = [rows_of(slot.size, how.ranks) * how.ranks for slot in bucket]
        if how.dtypes.reduce != how.dtypes.weights:
            whole = sum(slot.size for slot in bucket)
            made.append(reduction(self.book, "gradients cast to reduce", whole, (how.dtypes.reduce, self._stream)))
        if how.scatter and (bucket[1:] or sizes[0] != bucket[0].size):
            made.append(
                reduction(self.book, "gradients to reduce, padded", sum(sizes), (how.dtypes.reduce, self._stream))
            )
        events = [*(line + 1 for line in made), *(-line - 1 for line in reversed(made))]
        for slot in bucket:
            if how.offload:
                events += self._offloaded(rows_of(slot.size, how.ranks))
            if slot in self.whole:
                events.append(-self.whole.pop(slot) - 1)
        self.bucket, self.filled = [], 0
        return events

    def _offloaded(self, part: int) -> list[int]:
        """This rank's part of a gradient (elements) comes back from the host: its copy in fp32, its norm in pieces."""
        if part in self.back:
            return self.back[part]
        back = reduction(self.book, "part of a gradient, from the host", part, (self.how.dtypes.accumulate, 0))
        cast = reduction(self.book, "part of a gradient, cast", part, (FP32, 0))
        norm = reduction(self.book, "norm of a part of a gradient", min(part, DEEPSPEED.norm_chunk), (FP64, 0))
        self.back[part] = [back + 1, cast + 1, -cast - 1, norm + 1, -norm - 1, -back - 1]
        return self.back[part]

    @property
    def _stream(self) -> int:
        return REDUCTION if self.how.overlap else 0
