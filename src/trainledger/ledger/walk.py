"""Births and deaths of storages while a tape runs forward: what its primitives return and save, and when names end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainledger.ledger.tape import EXTERNAL, PRODUCTS, Prim, Tape

Events = list[int]  # storage number + 1 at birth, its negative at death


@dataclass(frozen=True, slots=True)
class Forward:
    """A tape after its forward: events, references held by autograd (by storage), outside values it saved; after how
    many events each primitive began, and had returned."""

    events: Events
    held: dict[int, int]
    outside: frozenset[int]
    turns: dict[int, tuple[int, int]]


def deaths(tape: Tape, kept: frozenset[int]) -> list[list[int]]:
    """For each primitive, the storages whose value's last use it is."""
    result: list[list[int]] = [[] for _ in tape.prims]
    store = tape.store
    for value, last in enumerate(tape.ends):
        if store[value] != EXTERNAL and value not in kept and last < len(result):
            result[last].append(store[value])
    return result


def products(tape: Tape) -> set[int]:
    """The storages that a matrix product returns."""
    made = {tape.store[value] for prim in tape.prims if prim.kind in PRODUCTS for value in prim.outs}
    return made | tape.within


def first_birth(events: Sequence[int], storages: set[int]) -> int:
    """How many events there are up to the first birth of one of these storages; 0 where there is none."""
    return next((at for at, event in enumerate(events, 1) if event - 1 in storages), 0)


def early_stop(tape: Tape) -> int:
    """Where a non-reentrant recompute stops: at the last saving primitive; after it when it saves an output."""
    for at in range(len(tape.prims) - 1, -1, -1):
        prim = tape.prims[at]
        if prim.saves:
            return at + 1 if saves_result(prim) else at
    return len(tape.prims)


Spans = Sequence[tuple[int, int, tuple[int, ...], bool]]  # as `regions.Region`


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
    dying = deaths(tape, kept)
    handed, inside = _inner((*regions, *((one.first, one.last, one.inputs, False) for one in tape.dropped)))
    emptied = _emptied(tape)
    turns: dict[int, tuple[int, int]] = {}
    for at, prim in enumerate(tape.prims):
        for storage in handed.get(at, ()):
            held[storage] = held.get(storage, 0) + 1
        began = len(events)
        if at == stop:
            turns[at] = (began, began)
            if saving:
                save(tape, prim, held, outside)
            break
        births(prim, store, refs, events)
        turns[at] = (began, len(events))
        if saving and prim.saves and at not in inside:
            save(tape, prim, held, outside)
        for storage in dying[at]:
            refs[storage] -= 1
            if not refs[storage] and storage not in held:
                events.append(-storage - 1)
        events += [-storage - 1 for storage in emptied.get(at, ()) if saving and storage in held]
    if stop is not None:
        safe = {store[value] for value in kept}
        unwind({storage: count for storage, count in refs.items() if storage not in safe}, held, events)
    return Forward(events, held, frozenset(outside), turns)


def _inner(spans: Spans) -> tuple[dict[int, tuple[int, ...]], set[int]]:
    """Of parts that run again: what each is handed, by its first primitive; all their primitives."""
    handed = {first: storages for first, last, storages, _ in spans if first < last}
    return handed, {at for first, last, *_ in spans for at in range(first, last)}


def _emptied(tape: Tape) -> dict[int, list[int]]:
    """By primitive, the saved storages that are emptied after it."""
    found: dict[int, list[int]] = {}
    for one in tape.dropped:
        found.setdefault(one.end, []).extend(one.storages)
    return found


def births(prim: Prim, store: list[int], refs: dict[int, int], events: Events) -> None:
    """A primitive's results are born, or named once more."""
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


def save(tape: Tape, prim: Prim, held: dict[int, int], outside: set[int]) -> None:
    """Autograd holds what a primitive saves."""
    for value in prim.saves:
        storage = tape.store[value]
        if storage == EXTERNAL:
            outside.add(value)
        else:
            held[storage] = held.get(storage, 0) + 1


def unwind(refs: dict[int, int], held: dict[int, int], events: Events) -> None:
    """An early stop leaves the Python frames: all that autograd does not hold dies."""
    for storage, count in refs.items():
        if count and storage not in held:
            events.append(-storage - 1)


def saves_result(prim: Prim) -> bool:
    """Whether a primitive saves one of its results."""
    return any(value in prim.outs for value in prim.saves)
