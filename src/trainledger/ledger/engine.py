"""Births and deaths of storages while a tape runs backward, as PyTorch's autograd engine does it.

Order of the engine: a node runs when all gradients of its output have arrived, the latest-made node first; the
incoming gradient is freed when its function returns, then what it saved, then the new gradients are added to the
buffers of the nodes before it (in place when nobody else holds the older one), and parameters take theirs at once.
Source: torch/csrc/autograd/engine.cpp, input_buffer.cpp, functions/accumulate_grad.h (v2.4 to v2.13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainledger.base.dims import Dims
from trainledger.facts.dtypes import DType
from trainledger.ledger.tape import EXTERNAL, GIVES, OWN, PRODUCTS, Code, Prim, Storage, Tape
from trainledger.ledger.walk import Events, births, deaths, save, saves_result, unwind
from trainledger.model.program import Weight

LeafRule = Callable[[Weight, int], list[int]]


class Arrival(NamedTuple):
    """A parameter's gradient is whole: the storage that holds it, and after how many events of backward."""

    weight: Weight
    storage: int
    at: int


def _repeated(tape: Tape) -> dict[int, int]:
    """How many gradients come of a trained parameter, of those that a linear layer reads and that are read again."""
    made = [prim for prim in tape.prims if tape.grad[prim.outs[0]]]
    read = {value for prim in made if prim.kind in PRODUCTS for value in prim.ins if value in tape.leaf}
    reads = Counter(prim.ins[step.at] for prim in made for step in prim.steps if step.code in GIVES)
    return {value: reads[value] for value in read if tape.grad[value] and reads[value] > 1}


class Backward:
    """The engine's state while one tape runs backward. `leaf` says what happens to a parameter's new gradient:
    it is given the parameter and the gradient's storage number, and returns the events that follow."""

    __slots__ = (
        "arrived",
        "events",
        "first",
        "given",
        "grads",
        "held",
        "leaf",
        "left",
        "named",
        "owned",
        "plain",
        "refs",
        "tape",
        "turned",
        "turns",
        "unpacked",
        "unreduced",
        "viewed",
    )

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
        self.turned: set[int] = set()  # gradients that are views of what a matrix product returned
        self.plain: set[int] = set()  # and those that are what it returned
        self.arrived: list[Arrival] = []  # parameters in the order in which their gradients are whole
        self.turns: dict[int, tuple[int, int]] = {}  # by primitive: events as its node began, and as it had returned
        self.first = EXTERNAL
        self.unreduced = False  # a strategy reduces the gradients that parameters are left with
        self.left = _repeated(tape)  # by parameter that several layers read: gradients that have not come yet
        self.unpacked = False  # saved tensors were made again, and belong to the function that unpacks them

    @property
    def products(self) -> set[int]:
        """Gradients that come of a matrix product."""
        return self.turned | self.plain

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
        dims = weight.slope if weight and weight.rows else tape.dims[value]
        tape.storages.append(Storage.of(dims, tape.dtype[value], label, weight))
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
            began, reached = len(self.events), any(value in self.grads for value in prims[at].outs)
            self._node(prims[at], handed if at == first else ())
            if reached:
                self.turns[at] = (began, len(self.events))

    def _node(self, prim: Prim, handed: Sequence[int]) -> None:
        leaves = self.tape.leaves  # a leaf keeps its gradient
        incoming = [EXTERNAL if value in leaves else self.grads.pop(value, EXTERNAL) for value in prim.outs]
        arrived = [storage for storage in incoming if storage != EXTERNAL]
        new = self._function(prim, incoming) if arrived else []
        for storage in arrived:
            self.release(storage)
        if prim.saves and not (arrived and self.unpacked and any(step.code is Code.LEFT for step in prim.steps)):
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
                    if at <= 1 and prim.kind in PRODUCTS:  # a bias comes after the two factors
                        (self.plain if prim.kind == OWN else self.turned).add(storage)
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
            elif code is Code.CLEAR:
                self._clear(what)
            elif code is Code.TURN:
                new += self._turned(prim.ins[at], what)
            elif code is Code.LEFT:
                if self.unpacked:
                    self.forget(prim)
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

    def _clear(self, saved: int) -> None:
        """A function empties a tensor that it alone has saved."""
        if saved not in self.named and self.held.get(saved) == 1:
            del self.held[saved]
            self.events.append(-saved - 1)

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
            apart = value in self.tape.wrapped or (value in self.left and old in self.turned)
            if self.refs[old] > 1 or old in self.viewed or apart:
                total = self._storage(value, "sum of gradients")
                self.events.append(total + 1)
                self.refs[total] = 1
                self.release(old)
                self.grads[value] = total
            self.release(storage)
        elif value in self.tape.leaf and value not in self.left:
            self._arrive(value, storage)
        else:
            self.grads[value] = storage
        if value in self.left:  # a parameter's own node runs when all its gradients are added up
            self.left[value] -= 1
            if not self.left[value]:
                self._arrive(value, self.grads.pop(value))

    def _arrive(self, value: int, storage: int) -> None:
        before = len(self.arrived)
        self.events.extend(self.leaf(self.tape.leaf[value], storage))
        if len(self.arrived) > before:
            self.arrived[-1] = self.arrived[-1]._replace(at=len(self.events))


def run_part(tape: Tape, span: range, refs: dict[int, int], events: Events) -> dict[int, int]:
    """Run some primitives forward, with `refs` as holders of what is there already; what they save, by storage. The
    holders and the events are added to in place."""
    held: dict[int, int] = {}
    dying = deaths(tape, frozenset())
    for at in span:
        births(tape.prims[at], tape.store, refs, events)
        save(tape, tape.prims[at], held, set())
        for storage in dying[at]:
            if storage in refs:
                refs[storage] -= 1
                if not refs[storage] and storage not in held:
                    events.append(-storage - 1)
    return held


def rerun(back: Backward, first: int, last: int) -> Events:
    """Run primitives from `first` on once more in backward, until the saving one at `last` has what it saves; what
    nothing saved dies as the run is left."""
    tape, events = back.tape, Events()
    refs: dict[int, int] = {}
    stop = last + 1 if saves_result(tape.prims[last]) else last
    held = run_part(tape, range(first, stop), refs, events)
    if stop == last:
        save(tape, tape.prims[last], held, set())
    unwind(refs, held, events)
    for storage, count in held.items():
        back.held[storage] = back.held.get(storage, 0) + count
    back.events += events
    return events
