"""Births and deaths of storages: a tape walked forward, then backward, as PyTorch's autograd engine does it.

Order of the engine: a node runs when all gradients of its output have arrived, the latest-made node first; the
incoming gradient is freed when its function returns, then what it saved, then the new gradients are added to the
buffers of the nodes before it (in place when nobody else holds the older one), and parameters take theirs at once.
Source: torch/csrc/autograd/engine.cpp, input_buffer.cpp, functions/accumulate_grad.h (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Dims
from trainledger.facts.dtypes import DType
from trainledger.ledger.tape import EXTERNAL, Code, Prim, Storage, Tape
from trainledger.model.program import Weight

Events = list[int]  # storage number + 1 at birth, its negative at death


@dataclass(frozen=True, slots=True)
class Forward:
    """A tape after its forward: events, references held by autograd (by storage), and outside values it saved."""

    events: Events
    held: dict[int, int]
    outside: frozenset[int]


def _deaths(tape: Tape, kept: frozenset[int]) -> list[list[int]]:
    """For each primitive, the storages whose value's last use it is."""
    result: list[list[int]] = [[] for _ in tape.prims]
    store = tape.store
    for value, last in enumerate(tape.ends):
        if store[value] != EXTERNAL and value not in kept and last < len(result):
            result[last].append(store[value])
    return result


def early_stop(tape: Tape) -> int:
    """Where a non-reentrant recompute stops: at the last saving primitive; after it when it saves an output."""
    for at in range(len(tape.prims) - 1, -1, -1):
        prim = tape.prims[at]
        if prim.saves:
            return at + 1 if _saves_result(prim) else at
    return len(tape.prims)


Spans = Sequence[tuple[int, int, tuple[int, ...]]]


def run_forward(
    tape: Tape, kept: frozenset[int], saving: bool, stop: int | None = None, regions: Spans = ()
) -> Forward:
    """Run the primitives, up to `stop` where given. With `saving`, autograd keeps what each primitive saves; of
    `regions` (first primitive, the one after the last, storages handed to it) only what they are handed.

    Inherited storages are alive at the start; `kept` values outlive the block (its output; casts that autocast caches).
    """
    events: Events = []
    held: dict[int, int] = {}
    outside: set[int] = set()
    store = tape.store
    refs = dict.fromkeys(tape.inherited, 1)
    dying = _deaths(tape, kept)
    handed = {first: storages for first, _, storages in regions}
    inside = {at for first, last, _ in regions for at in range(first, last)}
    for at, prim in enumerate(tape.prims):
        for storage in handed.get(at, ()):
            held[storage] = held.get(storage, 0) + 1
        if at == stop:
            if saving:
                _save(tape, prim, held, outside)
            break
        _births(prim, store, refs, events)
        if saving and prim.saves and at not in inside:
            _save(tape, prim, held, outside)
        for storage in dying[at]:
            refs[storage] -= 1
            if not refs[storage] and storage not in held:
                events.append(-storage - 1)
    if stop is not None:
        safe = {store[value] for value in kept}
        _unwind({storage: count for storage, count in refs.items() if storage not in safe}, held, events)
    return Forward(events, held, frozenset(outside))


def _births(prim: Prim, store: list[int], refs: dict[int, int], events: Events) -> None:
    for storage in prim.work:
        events.append(storage + 1)
    for value in prim.outs:
        storage = store[value]
        if storage == EXTERNAL:
            continue
        if storage in refs:
            refs[storage] += 1
        else:
            events.append(storage + 1)
            refs[storage] = 1
    for storage in prim.work:
        events.append(-storage - 1)


def _save(tape: Tape, prim: Prim, held: dict[int, int], outside: set[int]) -> None:
    for value in prim.saves:
        storage = tape.store[value]
        if storage == EXTERNAL:
            outside.add(value)
        else:
            held[storage] = held.get(storage, 0) + 1


def _unwind(refs: dict[int, int], held: dict[int, int], events: Events) -> None:
    """An early stop leaves the Python frames: all that autograd does not hold dies."""
    for storage, count in refs.items():
        if count and storage not in held:
            events.append(-storage - 1)


def rerun(back: Backward, first: int, last: int) -> Events:
    """Run primitives from `first` on once more in backward, until the saving one at `last` has what it saves; what
    nothing saved dies as the run is left."""
    tape, events = back.tape, Events()
    refs: dict[int, int] = {}
    held: dict[int, int] = {}
    dying = _deaths(tape, frozenset())
    stop = last + 1 if _saves_result(tape.prims[last]) else last
    for at in range(first, stop):
        _births(tape.prims[at], tape.store, refs, events)
        _save(tape, tape.prims[at], held, set())
        for storage in dying[at]:
            if storage in refs:
                refs[storage] -= 1
                if not refs[storage] and storage not in held:
                    events.append(-storage - 1)
    if stop == last:
        _save(tape, tape.prims[last], held, set())
    _unwind(refs, held, events)
    for storage, count in held.items():
        back.held[storage] = back.held.get(storage, 0) + count
    back.events += events
    return events


def _saves_result(prim: Prim) -> bool:
    return any(value in prim.outs for value in prim.saves)


LeafRule = Callable[[Weight, int], list[int]]


class Backward:
    """The engine's state while one tape runs backward. `leaf` says what happens to a parameter's new gradient:
    it is given the parameter and the gradient's storage number, and returns the events that follow."""

    __slots__ = ("events", "first", "given", "grads", "held", "leaf", "named", "owned", "refs", "tape", "viewed")

    def __init__(self, tape: Tape, held: dict[int, int], named: frozenset[int]) -> None:
        self.tape = tape
        self.held = held
        self.named = named  # storages that something besides autograd still holds
        self.leaf: LeafRule = lambda weight, storage: []
        self.events: Events = []
        self.grads: dict[int, int] = {}
        self.refs: dict[int, int] = {}
        self.owned: dict[int, Weight] = {}
        self.given: dict[int, int] = {}  # storages of other tapes, by their line
        self.viewed: set[int] = set()
        self.first = EXTERNAL

    def seed(self, value: int, name: str, extra: int = 0) -> int:
        """The gradient of a value arrives from outside; `extra` holders keep it from being added to in place."""
        storage = self._storage(value, name)
        self.grads[value] = storage
        self.refs[storage] = 1 + extra
        self.first = storage
        return storage

    def foreign(self, dims: Dims, dtype: DType, name: str, weight: Weight | None = None) -> int:
        """A storage that the tape itself does not make; its events are the caller's."""
        self.tape.storages.append(Storage.of(dims, dtype, name, weight))
        return len(self.tape.storages) - 1

    def _storage(self, value: int, name: str = "") -> int:
        tape = self.tape
        weight = tape.leaf.get(value)
        like = tape.storages[tape.store[value]].name if tape.store[value] != EXTERNAL else ""
        label = name or f"gradient of {weight.name if weight else like or 'input'}"
        tape.storages.append(Storage.of(tape.dims[value], tape.dtype[value], label, weight))
        return len(tape.storages) - 1

    def release(self, storage: int) -> None:
        """One holder of a gradient lets go."""
        self.refs[storage] -= 1
        if not self.refs[storage]:
            self.events.append(-storage - 1)

    def run(self, first: int, last: int, handed: Sequence[int] = ()) -> None:
        """Run the nodes of primitives `last - 1` down to `first`; `handed`: storages that a checkpoint lets go of with
        what the first primitive saved."""
        prims = self.tape.prims
        for at in range(last - 1, first - 1, -1):
            self._node(prims[at], handed if at == first else ())

    def _node(self, prim: Prim, handed: Sequence[int]) -> None:
        incoming = [self.grads.pop(value, EXTERNAL) for value in prim.outs]
        arrived = [storage for storage in incoming if storage != EXTERNAL]
        new = self._function(prim, incoming) if arrived else []
        for storage in arrived:
            self.release(storage)
        if prim.saves:
            self.forget(prim)
        for storage in handed:
            self.drop(storage)
        if len(new) > 1:  # a parameter's own node runs after this one has handed out all its gradients
            new.sort(key=lambda one: one[0] in self.tape.leaf)
        for value, storage in new:
            self._accumulate(value, storage)

    def _function(self, prim: Prim, incoming: list[int]) -> list[tuple[int, int]]:
        new: list[tuple[int, int]] = []
        for code, at, what in prim.steps:
            if code is Code.GRAD or code is Code.VIEW:
                value = prim.ins[at]
                if self.tape.grad[value]:
                    storage = self._storage(value)
                    self.events.append(storage + 1)
                    self.refs[storage] = 1
                    new.append((value, storage))
                    if code is Code.VIEW:
                        self.viewed.add(storage)
            elif code is Code.PASS or code is Code.SEEN:
                value, passed = prim.ins[at], incoming[what]
                if self.tape.grad[value] and passed != EXTERNAL:
                    self.refs[passed] += 1
                    new.append((value, passed))
                    if code is Code.SEEN:
                        self.viewed.add(passed)
            elif code is Code.BORN:
                self.events.append(what + 1)
            elif code is Code.DEAD:
                self.events.append(-what - 1)
            elif code is Code.TURN:
                new += self._turned(prim.ins[at], what)
            elif self.tape.grad[prim.ins[at]]:
                self.refs[what] = 1
                new.append((prim.ins[at], what))
            else:
                self.events.append(-what - 1)
        return new

    def drop(self, storage: int) -> None:
        """A checkpoint lets go of a storage that it was handed."""
        self.held[storage] -= 1
        if not self.held[storage]:
            del self.held[storage]
            if storage not in self.named:
                self.events.append(-storage - 1)

    def _turned(self, value: int, saved: int) -> list[tuple[int, int]]:
        """A kernel wrote an input's gradient over what autograd saved; where others hold that too, they share it."""
        if not self.tape.grad[value]:
            return []
        if saved in self.named or self.held.get(saved) != 1:
            self.refs[saved] = self.held.get(saved, 0) + 1
            return [(value, saved)]
        del self.held[saved]
        storage = self._storage(value)
        self.events += [-saved - 1, storage + 1]
        self.refs[storage] = 1
        return [(value, storage)]

    def forget(self, prim: Prim) -> None:
        """Autograd lets go of what a primitive saved."""
        held, store = self.held, self.tape.store
        for value in prim.saves:
            storage = store[value]
            if storage in held:
                self.drop(storage)

    def _accumulate(self, value: int, storage: int) -> None:
        old = self.grads.get(value)
        if old is not None:
            if self.refs[old] > 1 or old in self.viewed:
                total = self._storage(value, "sum of gradients")
                self.events.append(total + 1)
                self.refs[total] = 1
                self.release(old)
                self.grads[value] = total
            self.release(storage)
        elif value in self.tape.leaf:
            self.events.extend(self.leaf(self.tape.leaf[value], storage))
        else:
            self.grads[value] = storage
