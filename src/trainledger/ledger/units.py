"""The units in which a strategy gathers weights: which weights each holds, and which pieces of the model need it.

Pieces count from 0, the embedding, over the layers to the last, the head with its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from trainledger.facts.dtypes import DType
from trainledger.facts.sharding import OWN_UNITS
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.facts.versions import at_least
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Arrived
from trainledger.ledger.registered import around, ordered
from trainledger.model.program import Embed, Linear, LowRank, Model, Role, Weight

ROOT, EMBEDDING, HEAD = "the root", "the embedding", "the head"
Key = tuple[int, int]  # a piece, and which of its units
ROOT_KEY: Key = (-1, 0)
Sorted = tuple[tuple[int | None, list[Arrived]], ...]  # gradients by the number of a piece's unit, None for the root
Made = TypeVar("Made")


class Member(NamedTuple):
    """A weight of a unit, and the prefix of its lines' names."""

    prefix: str
    weight: Weight

    @property
    def name(self) -> str:
        """The name of its lines."""
        return self.prefix + self.weight.name


@dataclass(frozen=True, slots=True)
class Unit:
    """Weights that are gathered and reduced together, in their order."""

    name: str
    members: tuple[Member, ...]

    def __hash__(self) -> int:
        """By name: a unit may have a thousand members."""
        return hash(self.name)

    @property
    def dtype(self) -> DType | None:
        """The dtype of the weights, where it is not that of the model's."""
        return self.members[0].weight.dtype

    def without(self, ignored: frozenset[Weight]) -> Unit:
        """The unit without these weights."""
        return Unit(self.name, tuple(one for one in self.members if one.weight not in ignored))

    def apart(self) -> tuple[Unit, ...]:
        """What an adapter's run trains as a unit of its own, after what it freezes."""
        tuned = tuple(one for one in self.members if one.weight.tuned)
        frozen = tuple(one for one in self.members if not one.weight.tuned)
        units = (Unit(self.name, frozen), Unit(f"what is trained of {self.name}", tuned))
        return tuple(unit for unit in units if unit.members)


class Spot(NamedTuple):
    """Where the module of a unit stands: its path (of one inside a layer, below the layer; of a layer none), its first
    and last piece; which of the first one's operations it begins with; whether it is all of its pieces, but for what
    follows it in the head."""

    path: str
    first: int
    last: int
    begin: int
    whole: bool

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Sorts modules as they begin forward, outer ones before those that they begin with."""
        return self.first, self.begin, -self.last, len(self.path)


@dataclass(frozen=True, slots=True)
class Units:
    """`own`: the units that are open while a piece runs, by piece; `root`: what is open around all of them, None where
    every weight has a unit of its own; `pieces`: how many there are; `ignored`: weights that belong to no unit; `stay`:
    pieces whose units stay gathered from forward to backward; `shut`: whether the head's own are let go of as its
    forward ends. `spots`: where units are single modules, the places of these; a unit of several pieces is the last
    one's own."""

    own: Mapping[int, tuple[Unit, ...]]
    root: Unit | None
    pieces: int
    ignored: frozenset[Weight] = frozenset()
    stay: frozenset[int] = frozenset()
    shut: bool = False
    spots: Mapping[Key, Spot] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number of the last piece, the head with its loss."""
        return self.pieces - 1

    def keys(self, at: int) -> tuple[Key, ...]:
        """The keys of a piece's own units."""
        return tuple((at, number) for number in range(len(self.own.get(at, ()))))

    def unit(self, key: Key) -> Unit | None:
        """The unit of a key; None for the root where there is none."""
        return self.root if key == ROOT_KEY else self.own[key[0]][key[1]]

    def key(self, at: int, weight: Weight) -> Key:
        """The unit to which a weight of a piece belongs."""
        for key, unit in zip(self.keys(at), self.own.get(at, ()), strict=True):
            if any(member.weight == weight for member in unit.members):
                return key
        for key in self.around:
            if self.spots[key].first <= at and any(one.weight == weight for one in self.own[key[0]][key[1]].members):
                return key
        return ROOT_KEY

    @property
    def around(self) -> tuple[Key, ...]:
        """The keys of units that stand around several pieces, the innermost first."""
        return tuple(key for key, spot in self.spots.items() if spot.first < spot.last)

    def every(self) -> Iterator[Unit]:
        """All units in the order in which they are wrapped, the root last."""
        for at in sorted(self.own):
            yield from self.own[at]
        if self.root:
            yield self.root


class ByUnit(Generic[Made]):
    """What is worked out once for each unit, by its identity, which equal layers share."""

    __slots__ = ("_known", "_make")

    def __init__(self, make: Callable[[Unit], Made]) -> None:
        self._make = make
        self._known: dict[int, tuple[Unit, Made]] = {}  # with the unit, so that its identity stays its own

    def __call__(self, unit: Unit) -> Made:
        """What was made of this unit."""
        known = self._known.get(id(unit))
        if known is None:
            known = self._known[id(unit)] = (unit, self._make(unit))
        return known[1]


class UnitHooks(Hooks):
    """Collects gradients by unit: a layer's are dealt with as it is left, others when backward ends."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.arrived: dict[Key, list[Arrived]] = {}
        self._weights = ByUnit(lambda unit: frozenset(member.weight for member in unit.members))
        self._sorted: dict[tuple[int, ...], Sorted] = {}

    def reduce(self, key: Key) -> list[int]:
        """Deal with a unit's gradients."""
        raise NotImplementedError

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> tuple[int, ...]:
        """Deal with a layer's gradients as it is left."""
        for number, found in self._by_unit(self.units.own.get(at, ()), arrived):
            self.arrived.setdefault(ROOT_KEY if number is None else (at, number), []).extend(found)
        return tuple(event for key in self.units.keys(at) if at for event in self.reduce(key))

    def _by_unit(self, own: tuple[Unit, ...], arrived: tuple[Arrived, ...]) -> Sorted:
        """Gradients by the number of their unit, None for the root; equal layers share their units and what arrives."""
        key = (id(arrived), *(id(unit) for unit in own))
        if key not in self._sorted:
            found: dict[int | None, list[Arrived]] = {}
            for one in (one for one in arrived if one.weight not in self.units.ignored):
                found.setdefault(self._number(own, one.weight), []).append(one)
            self._sorted[key] = tuple(found.items())
        return self._sorted[key]

    def _number(self, own: tuple[Unit, ...], weight: Weight) -> int | None:
        return next((number for number, unit in enumerate(own) if weight in self._weights(unit)), None)

    def ended(self) -> tuple[int, ...]:
        """Deal with all others."""
        return tuple(event for key in (*self.units.keys(0), ROOT_KEY) for event in self.reduce(key))


def apart(units: Units) -> Units:
    """The units of PEFT's policy: what is trained stands beside the frozen rest of its layer, so that no flat parameter
    mixes them. Its leaves are units of their own; here they are one, opened and reduced with their layer.

    Source: peft/utils/other.py, fsdp_auto_wrap_policy (0.10 to 0.21).
    """
    own = {at: tuple(part for unit in row for part in unit.apart()) for at, row in units.own.items()}
    around = units.root.apart() if units.root else ()
    if len(around) > 1:  # modules trained whole, around the layers
        own[units.last] = (*own.get(units.last, ()), around[-1])
    return Units(own, around[0] if around else None, units.pieces, units.ignored)


def by_layers(units: Units) -> Units:
    """Layers as units, told where their modules stand."""
    return replace(units, spots={(at, 0): Spot("", at, at, 0, True) for at in units.own})


def adapters_of(model: Model) -> frozenset[Weight]:
    """The weights of low-rank adapters."""
    ops = (*model.prologue, *model.head.ops, *(op for block in model.blocks for op in block.ops))
    low = [op.spec.adapter for op in ops if isinstance(op.spec, Linear | Embed)]
    return frozenset(weight for one in low if isinstance(one, LowRank) for weight in (one.down, one.up))


def unsharded(model: Model) -> frozenset[Weight]:
    """Quantised weights all of whose tensors are buffers, which FSDP2 leaves to every rank in whole."""
    every = (weight for block in model.blocks for weight in block.weights)
    return frozenset(weight for weight in every if weight.packed is not None and weight.packed.kind.buffers)


def ignoring(units: Units, ignored: frozenset[Weight]) -> Units:
    """The units without these weights."""
    own = {at: tuple(left for unit in row if (left := unit.without(ignored)).members) for at, row in units.own.items()}
    root = units.root.without(ignored) if units.root else None
    return Units(own, root if root and root.members else None, units.pieces, ignored)


def units_of(model: Model, versions: Mapping[str, str], wraps: bool = True) -> Units:
    """Every layer a unit. What is around them is the root; from accelerate 1.14 on, embedding and head by themselves.

    A weight that embedding and head share keeps both in one unit, the root. Without `wraps` the model is one unit.
    """
    layers: dict[int, Unit] = {}
    for block in model.blocks:
        unit = Unit(block.name, tuple(Member(f"{block.name}.*.", one) for one in ordered(model, block.weights)))
        layers |= dict.fromkeys((index + 1 for index in block.layers), unit)
    last = len(layers) + 1
    words = tuple(Member("", weight) for weight in ordered(model, model.embeddings))
    head = tuple(Member("", weight) for part in around(model) for weight in part)
    if not wraps:
        inner = tuple(member for at in sorted(layers) for member in layers[at].members)
        return Units({}, Unit(ROOT, (*words, *inner, *head)), last + 1)
    own = {at: (unit,) for at, unit in layers.items()}
    outside = (*words, *head)
    shared = any(isinstance(op.spec, Linear) and op.spec.weight in model.embeddings for op in model.head.ops)
    if _apart(versions) and not shared:
        first = tuple(one for one in words if one.weight.role is Role.EMBEDDING)[:1]
        own |= {0: (Unit(EMBEDDING, first),), last: (Unit(HEAD, head),)}
        outside = tuple(one for one in words if one not in first)
    return Units(own, Unit(ROOT, outside) if outside else None, last + 1)


def _apart(versions: Mapping[str, str]) -> bool:
    """Whether embedding and head are units by themselves: in newer releases of accelerate and of torchtitan."""
    release, titan = versions.get(OWN_UNITS.package), versions.get(TORCHTITAN)
    return (bool(release) and at_least(release, OWN_UNITS.since)) or (bool(titan) and holds(Change.APART, titan or ""))


def staying(units: Units, pieces: frozenset[int]) -> Units:
    """The units, of which those of these pieces stay gathered from forward to backward."""
    return replace(units, stay=pieces)


def beside_experts(units: Units) -> Units:
    """The units, of which routed experts are units of their own."""
    made: dict[int, tuple[Unit, ...]] = {}

    def split(unit: Unit) -> tuple[Unit, ...]:
        if id(unit) not in made:
            inner = tuple(one for one in unit.members if one.weight.role is Role.EXPERT)
            rest = tuple(one for one in unit.members if one not in inner)
            parts = (Unit(unit.name, rest), Unit(f"routed experts of {unit.name}", inner))
            made[id(unit)] = tuple(one for one in parts if one.members)
        return made[id(unit)]

    return replace(units, own={at: tuple(part for one in row for part in split(one)) for at, row in units.own.items()})
