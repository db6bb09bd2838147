"""Wrapping by size: which modules of a model torch's policy makes units, and where each stands in the walk.

Children come first: a module with at least so many elements that no child's unit holds is a unit; lists of modules,
which have no forward, never are. What is left is the root.
Source: torch/distributed/fsdp/wrap.py, size_based_auto_wrap_policy and _recursive_wrap (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainledger.ledger.registered import around, ordered
from trainledger.ledger.units import ROOT, ROOT_KEY, Key, Member, Spot, Unit, Units
from trainledger.model.decoder import weights_of
from trainledger.model.program import Linear, Looped, Model, Op, Weight

Slot = tuple[int, Weight]  # a parameter: the piece that holds it, its weight


class Place(NamedTuple):
    """A parameter where a module has it: the module's path (layers by number), the piece in which it stands, the
    parameter (a shared one is another piece's), and its line's prefix."""

    path: str
    piece: int
    slot: Slot
    prefix: str


def places_of(model: Model) -> Iterator[Place]:
    """Every parameter in every module that has it, as classes register them."""
    for weight in ordered(model, model.embeddings):
        yield Place(_above(weight.name), 0, (0, weight), "")
    order = sorted((index, number) for number, block in enumerate(model.blocks) for index in block.layers)
    for piece, (index, number) in enumerate(order, 1):
        block = model.blocks[number]
        for weight in ordered(model, block.weights):
            yield Place(_above(f"{block.name}.{index}.{weight.name}"), piece, (piece, weight), f"{block.name}.*.")
    last = len(order) + 1
    for weight in (one for part in around(model) for one in part):
        yield Place(_above(weight.name), last, (last, weight), "")
    for op in model.head.ops:
        for weight in weights_of((op,)):
            home = 0 if weight in model.embeddings else last
            yield Place(op.name, last, (home, weight), "")


def _above(name: str) -> str:
    return name.rpartition(".")[0]


class Tree:
    """The modules of a model with the parameters below each."""

    def __init__(self, model: Model) -> None:
        self.places = tuple(places_of(model))
        self.below: dict[str, dict[Slot, None]] = {"": {}}
        self.children: dict[str, dict[str, None]] = {}
        self.pieces: dict[str, set[int]] = {}
        for place in self.places:
            path = place.path
            while path:
                self.below.setdefault(path, {})[place.slot] = None
                self.children.setdefault(_above(path), {})[path] = None
                self.pieces.setdefault(path, set()).add(place.piece)
                path = _above(path)
            self.below[""][place.slot] = None
        self.lists = frozenset(_lists(model))

    def wrapped(self, least: int) -> list[str]:
        """Paths of the modules that are units, children first."""
        found: list[str] = []
        self._wrap("", least, found)
        return found

    def _wrap(self, path: str, least: int, found: list[str]) -> int:
        """Elements below the module that units hold, as the policy counts them: a shared one wherever it stands."""
        size = sum(weight.elements for _, weight in self.below[path])
        if size < least:
            return 0
        inner = sum(self._wrap(child, least, found) for child in self.children.get(path, ()))
        if not path or path in self.lists or size - inner < least:
            return inner
        found.append(path)
        return size


def _lists(model: Model) -> Iterator[str]:
    """Paths of lists of modules: the layers, and experts that are modules of their own."""
    for block in model.blocks:
        yield block.name
        for op in block.ops:
            if isinstance(op.spec, Looped):
                inner = _above(_above(op.spec.experts[0][0].name))
                for index in block.layers:
                    yield f"{block.name}.{index}.{_above(inner)}"


def by_size(model: Model, least: int) -> Units:
    """The units of the policy with `least` elements each."""
    tree = Tree(model)
    homes: set[Slot] = set()
    own: dict[int, tuple[Unit, ...]] = {}
    spots: dict[Key, Spot] = {}
    prefixes = {place.slot: place.prefix for place in tree.places if place.piece == place.slot[0]}
    for path in tree.wrapped(least):
        slots = [slot for slot in tree.below[path] if slot not in homes]
        homes.update(slots)
        spot, name = _spot(model, path, tree.pieces[path])
        key = (spot.last, len(own.get(spot.last, ())))
        unit = Unit(name, tuple(Member(prefixes[slot], slot[1]) for slot in slots))
        own[spot.last], spots[key] = (*own.get(spot.last, ()), unit), spot
    left = tuple(Member(prefixes[slot], slot[1]) for slot in prefixes if slot not in homes)
    pieces = sum(block.count for block in model.blocks) + len(("embedding", "head"))
    return Units(own, Unit(ROOT, left) if left else None, pieces, spots=spots)


def _spot(model: Model, path: str, pieces: set[int]) -> tuple[Spot, str]:
    """Where a module stands, and its name, in which a layer's number is left out."""
    first, last = min(pieces), max(pieces)
    for block in model.blocks:
        if path.startswith(f"{block.name}."):
            _, _, rest = path.removeprefix(f"{block.name}.").partition(".")
            if not rest:
                return Spot("", first, last, 0, True), block.name
            return Spot(rest, first, last, _begin(model, first, rest), False), f"{block.name}.*.{rest}"
    if first == last:
        return Spot(path, first, last, _begin(model, first, path), False), path
    heads = bool(within(calls_of(model.head.ops), path)) or last <= sum(block.count for block in model.blocks)
    return Spot(path, first, last if heads else last - 1, 0, True), path


def _begin(model: Model, piece: int, path: str) -> int:
    """The number of a module's first operation in a piece; 0 where it runs none."""
    return next(iter(within(calls_of(ops_of(model, piece)), path)), 0)


def calls_of(ops: Sequence[Op]) -> list[tuple[str, bool]]:
    """The operations' names, and whether each reads weights."""
    return [(op.name, bool(weights_of((op,)))) for op in ops]


def ops_of(model: Model, piece: int) -> tuple[Op, ...]:
    """The operations of a piece."""
    if not piece:
        return model.prologue
    return next((block.ops for block in model.blocks if piece - 1 in block.layers), model.head.ops)


def within(calls: Sequence[tuple[str, bool]], path: str) -> list[int]:
    """Which of the calls (names, and whether each is of a module that has weights) a module makes: those below it, or
    where it is called itself, that call, without the views of its result that are named after it."""
    itself = [at for at, (name, module) in enumerate(calls) if name == path and module]
    return itself or [at for at, (name, _) in enumerate(calls) if f"{name}.".startswith(f"{path}.")]


def strays(model: Model, units: Units, fused: bool) -> tuple[tuple[str, str], ...]:
    """Units that the walk cannot follow, each with what reads its weights elsewhere, or among its own operations.
    `fused`: the loss reads the head's weight itself."""
    found: dict[tuple[str, str], None] = {}
    for piece in (0, *(block.layers[0] + 1 for block in model.blocks), units.last):
        ops = ops_of(model, piece)
        calls = calls_of(ops)
        for at, op in enumerate(ops):
            past = fused and isinstance(op.spec, Linear) and "logits" in op.outs
            for weight in weights_of((op,)):
                key = units.key(0 if weight in model.embeddings else piece, weight)
                if key != ROOT_KEY and (past or not _runs(units, (key, piece, at), calls)):
                    found[_name(units, key), "the loss" if past else op.name] = None
        for key, spot in units.spots.items():
            if spot.first == piece == spot.last and spot.path and not within(calls, spot.path):
                found[_name(units, key), "nothing"] = None
    return tuple(found)


def _runs(units: Units, at: tuple[Key, int, int], calls: Sequence[tuple[str, bool]]) -> bool:
    """Whether the operation (a unit's key, its piece and number) runs inside the unit's module, and no other module's
    weights are read between the first and the last of the module's operations."""
    key, piece, number = at
    spot = units.spots[key]
    if not spot.first <= piece <= spot.last:
        return False
    if spot.whole and (not spot.path or piece != units.last):
        return True
    inside = within(calls, spot.path)
    between = set(range(inside[0], inside[-1])) - set(inside) if inside else set()
    return number in inside and not any(calls[one][1] for one in between)


def _name(units: Units, key: Key) -> str:
    unit = units.unit(key)
    return unit.name if unit else ROOT
