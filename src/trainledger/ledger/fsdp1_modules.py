"""FSDP1 where units are single modules, smaller or larger than a layer: what it gathers as each module is called.

A unit is gathered as its module's forward begins and let go as that returns; in backward it is gathered as the gradient
of the module's result arrives, and reduced once all of its own gradients are there. What is gathered ahead follows the
order in which forwards returned. A unit that was gathered ahead in forward is reduced later: the node that joins its
gradients was made in the module before, and runs when that one's backward is done.
Source: torch/distributed/fsdp/_runtime_utils.py (_pre_forward, _post_forward, _pre_backward_hook, _post_backward_hook,
_get_handle_to_prefetch), _exec_order_utils.py (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.fsdp1 import Fsdp1, Stay
from trainledger.ledger.fsdp1_lines import FlatLines
from trainledger.ledger.units import ROOT_KEY, Key, Units
from trainledger.ledger.visits import Call
from trainledger.ledger.woven import Woven
from trainledger.ledger.wrapping import within
from trainledger.lines.stream import Events
from trainledger.model.program import Weight


class Reach(NamedTuple):
    """A unit in a piece: the first and the last call that its module makes there, and whether it began before them."""

    key: Key
    first: int
    last: int
    open: bool


class Order:
    """FSDP's flags of one micro-batch: units in the order in which their forwards returned, and the place of each;
    those whose backward will ask for weights (`needs`), that were gathered ahead (`early`), whose forward is still to
    come (`coming`), whose backward has begun (`back`)."""

    def __init__(self, units: Units) -> None:
        self.forward = [ROOT_KEY] if units.root else []
        self.forward += sorted(units.spots, key=lambda key: units.spots[key].order)
        self.coming = set(self.forward)
        self.returned: list[Key] = []
        self.place: dict[Key, int] = {}
        self.needs: set[Key] = set()
        self.early: set[Key] = set()
        self.back: set[Key] = set()

    def record(self, key: Key) -> None:
        """A forward returned. The first one's place is 0, which is taken for none: it moves when it runs again."""
        if not self.place.get(key):
            self.place[key] = len(self.returned)
        self.returned.append(key)

    def before(self, key: Key) -> Key | None:
        """The unit that backward needs after this one, if it is to be gathered ahead."""
        at = self.place.get(key, 0)
        found = self.returned[at - 1] if at else None
        return found if found in self.needs and found not in self.early else None

    def after(self, key: Key) -> Key | None:
        """The unit that forward needs after this one, if it is to be gathered ahead."""
        found = next(iter(self.forward[self.forward.index(key) + 1 :]), None)
        return found if found in self.coming and found not in self.early else None


class Fsdp1Modules(Fsdp1):
    """One micro-batch."""

    def __init__(self, units: Units, lines: FlatLines, stay: Stay, flags: tuple[bool, bool, bool]) -> None:
        super().__init__(units, lines, stay, flags)
        self.order = Order(units)
        self.nested = sorted(units.spots, key=lambda key: units.spots[key].order)
        self.around = {key: frozenset(one.weight for one in units.own[key[0]][key[1]].members) for key in units.around}
        self.trained: set[Key] = set()  # units whose module's result needs a gradient
        self.inner: set[Key] = set()  # units of several pieces that end inside the head
        self.later: dict[Key, Key] = {}  # units that were gathered ahead in forward, by the one before

    # ---- the order of calls

    def ahead(self, at: int) -> Events:
        """Gather what stands around the piece."""
        events = [*self._begun(), *self._enter(ROOT_KEY)] if at == 0 else []
        return (*events, *self._all(self._enter, self._beginning(at)))

    def inside(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """Every unit's module, as it begins and returns."""
        found, calls = Woven(), _calls(walked)
        reaches = self._reaches(at, calls)
        trained = {calls.index(visit.call) for visit in walked.visits.backward if not visit.again}
        self.trained.update(one.key for one in reaches if any(one.first <= number <= one.last for number in trained))
        self.trained.update(key for key in (ROOT_KEY, *self._ending(at)) if walked.trains)
        self.inner.update(one.key for one in reaches if one.open)
        for visit in walked.visits.forward:
            found.add(visit.at, self._called(reaches, calls.index(visit.call), visit.done))
        return found.found

    def passed(self, at: int) -> Events:
        """Let go of what stands around the piece and ends with it."""
        keys = [key for key in reversed(self._ending(at)) if key not in self.inner]
        return self._all(self._leave, [*keys, *((ROOT_KEY,) if at == self.units.last else ())])

    def behind(self, at: int) -> Events:
        """Gather what stands around the piece's backward, and the next."""
        keys = [key for key in reversed(self._ending(at)) if key not in self.inner]
        return self._all(self._return, [*((ROOT_KEY,) if at == self.units.last else ()), *keys])

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """Every unit's module, as its backward begins and ends, and in a forward that runs again."""
        for one in walked.arrived:
            self.arrived.setdefault(self._home(at, one.weight), []).append(one)
        found, calls = Woven(), _calls(walked)
        reaches = self._reaches(at, calls)
        numbers = [calls.index(visit.call) for visit in walked.visits.backward]
        reached = {n for n, visit in zip(numbers, walked.visits.backward, strict=True) if not visit.again}
        lowest = {one.key: min((n for n in reached if one.first <= n <= one.last), default=-1) for one in reaches}
        for number, visit in zip(numbers, walked.visits.backward, strict=True):
            if visit.again:
                found.add(visit.at, self._called(reaches, number, visit.done))
            elif visit.done:
                over = [one.key for one in reversed(reaches) if lowest[one.key] == number and not one.open]
                found.add(visit.at, self._all(self._over, over))
            else:
                begun = [one.key for one in reversed(reaches) if one.first <= number <= one.last]
                found.add(visit.at, self._all(self._return, begun))
        return found.found

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> Events:
        """Deal with the gradients of what stands around the piece and begins with it."""
        return self._all(self._over, self._beginning(at)[::-1])

    def ended(self) -> Events:
        """Reduce what is left, and let go of what was gathered for nothing."""
        left = [] if self.how.keeps and not self.sync else sorted(self.stay.open)
        return (*self._all(self._over, (ROOT_KEY,)), *super().ended(), *self._all(self._reshard, left))

    def _all(self, run: Callable[[Key], list[int]], keys: Iterable[Key]) -> Events:
        return tuple(event for key in keys for event in run(key))

    # ---- where modules stand

    def _beginning(self, at: int) -> list[Key]:
        """Units that are all of the piece and begin with it, the outermost first."""
        return [key for key in self.nested if self.units.spots[key].whole and self.units.spots[key].first == at]

    def _ending(self, at: int) -> list[Key]:
        """Units that are all of their pieces and end with this one, the outermost first."""
        return [key for key in self.nested if self.units.spots[key].whole and self.units.spots[key].last == at]

    def _reaches(self, at: int, calls: Sequence[Call]) -> list[Reach]:
        """Units whose modules begin or end among the piece's calls, the outermost first."""
        found, named = list[Reach](), [(call.name, bool(call.weights)) for call in calls]
        for key in sorted(self.units.keys(at), key=self.nested.index):
            spot = self.units.spots[key]
            if spot.path and (not spot.whole or at == self.units.last):
                inside = within(named, spot.path)
                found += [Reach(key, inside[0], inside[-1], spot.whole)] if inside else []
        return found

    def _home(self, at: int, weight: Weight) -> Key:
        """The unit of a weight of this piece."""
        for key in self.units.keys(at):
            if key not in self.around and any(one.weight == weight for one in self.units.own[at][key[1]].members):
                return key
        spots = self.units.spots
        inside = (key for key in self.around if spots[key].first <= at <= spots[key].last)
        return next((key for key in inside if weight in self.around[key]), ROOT_KEY)

    def _called(self, reaches: Sequence[Reach], number: int, done: bool) -> Events:
        """A call begins forward or (`done`) has returned, and with it units' modules."""
        if done:
            return self._all(self._leave, [one.key for one in reversed(reaches) if one.last == number])
        return self._all(self._enter, [one.key for one in reaches if one.first == number and not one.open])

    # ---- one unit

    def _enter(self, key: Key) -> list[int]:
        """Its module's forward begins; one that runs again within its backward has its weights."""
        order = self.order
        if self.units.unit(key) is None or key in order.back:
            return []
        order.coming.discard(key)
        after = order.after(key) if self.how.forward else None
        if after is not None:
            self.later[key] = after
        return self._unshard(key) + self._early(after)

    def _leave(self, key: Key) -> list[int]:
        """Its module's forward returns. The root stays gathered for backward."""
        order = self.order
        if self.units.unit(key) is None or key in order.back:
            return []
        order.record(key)
        order.early.discard(key)
        if key in self.trained:
            order.needs.add(key)
        stays = not self.how.whole and (self.how.keeps or key == ROOT_KEY)
        return [] if stays else self._reshard(key)

    def _return(self, key: Key) -> list[int]:
        """The gradient of its module's result arrives."""
        order = self.order
        if self.units.unit(key) is None or key in order.back:
            return []
        order.back.add(key)
        order.needs.discard(key)
        return self._unshard(key) + (self._early(order.before(key)) if self.how.early else [])

    def _over(self, key: Key) -> list[int]:
        """Its module's backward is done: what was gathered ahead in it is reduced first."""
        after = self.later.get(key)
        ended = [] if after is None else self.reduce(after)
        return ended if key in self.later.values() else ended + self.reduce(key)

    def reduce(self, key: Key) -> list[int]:
        """All gradients of the unit are there, and its weights go."""
        self.order.early.discard(key)
        return super().reduce(key)

    def _left(self, key: Key) -> list[int]:
        return self._early(self.order.before(key)) if self.how.late else []

    def _early(self, key: Key | None) -> list[int]:
        if key is None:
            return []
        self.order.early.add(key)
        return self._unshard(key)


def _calls(walked: Walked) -> list[Call]:
    """The calls of a piece in the order of its forward."""
    return [visit.call for visit in walked.visits.forward if not visit.done]
