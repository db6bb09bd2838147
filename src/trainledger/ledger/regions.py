"""Parts of a block that are recomputed on their own: a checkpointed module among others that keep what they save.

Source: torch/utils/checkpoint.py (v2.4 to v2.13), without reentrance: the part's input tensors are kept, its forward
runs again at the first saved tensor that backward asks for, and stops at the last one it needs. With reentrance (also
megatron/core/tensor_parallel/random.py, CheckpointFunction) all of it runs again, and its results and the incoming
gradients are held until its own backward returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.ledger.engine import Backward, rerun, run_part
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import Events, unwind

Mark = tuple[str, int, int]  # an operation's name, its first primitive, and the one after its last


class Region(NamedTuple):
    """A part of a tape: its first primitive, the one after its last, the storages that it is handed, and whether its
    checkpoint is reentrant."""

    first: int
    last: int
    inputs: tuple[int, ...]
    reentrant: bool = False


def regions_of(
    tape: Tape, marks: Sequence[Mark], modules: Sequence[str], reentrant: bool = False
) -> tuple[Region, ...]:
    """Runs of operations that belong to one of these modules (by name or by the start of a dotted name)."""
    found: list[Region] = []
    for module in dict.fromkeys(_module(name, modules) for name, _, _ in marks):
        own = [mark for mark in marks if module and _module(mark[0], modules) == module]
        found += [_region(tape, first, last)._replace(reentrant=reentrant) for first, last in _runs(own)]
    return tuple(sorted(found))


def _runs(own: Sequence[Mark]) -> list[tuple[int, int]]:
    """From where to where a module's operations go; where its first one comes again after others it is another layer's
    module."""
    runs: list[tuple[int, int]] = []
    for name, first, last in own:
        if runs and not (name == own[0][0] and first > runs[-1][1]):
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return [(first, last) for first, last in runs if first < last]


def _module(name: str, modules: Sequence[str]) -> str:
    return next((module for module in modules if name == module or name.startswith(f"{module}.")), "")


def _region(tape: Tape, first: int, last: int) -> Region:
    prims = tape.prims[first:last]
    made = {value for prim in prims for value in prim.outs}
    cached = set(tape.cached.values())
    handed = dict.fromkeys(
        tape.store[value] for prim in prims for value in prim.ins if value not in made and value not in cached
    )
    there = {tape.store[value] for prim in tape.prims[:first] for value in prim.outs} | {*tape.inherited}
    own = {tape.store[value] for value in made} - there  # not views of what came in
    return Region(first, last, tuple(one for one in handed if one != EXTERNAL and one not in own))


def regions_back(back: Backward, regions: Sequence[Region], span: tuple[int, int] | None = None) -> frozenset[int]:
    """The backward of a span of the tape, or of all of it; returns the storages that a region's forward made once
    more."""
    (first, last), again = span or (0, len(back.tape.prims)), set[int]()
    for region in reversed(regions):
        back.run(region.last, last)
        again |= _remade(back, region)
        last = region.first
    back.run(first, last)
    return frozenset(again)


def run_again(back: Backward, span: tuple[int, int], inputs: Sequence[int], results: Sequence[int]) -> set[int]:
    """A part runs once more, to its end, of storages that are handed to it; its results stay, also for itself. Returns
    the storages that it made."""
    tape, events = back.tape, Events()
    refs = dict.fromkeys(inputs, len(tape.ends) + 1)  # held by others all the while, however many views there are
    held = run_part(tape, range(*span), refs, events)
    staying = {*results, *inputs}
    unwind({storage: count for storage, count in refs.items() if storage not in staying}, held, events)
    for storage in results:
        held[storage] = held.get(storage, 0) + 1
    for storage, count in held.items():
        back.held[storage] = back.held.get(storage, 0) + count
    back.events += events
    return {event - 1 for event in events if event > 0}


def _entered(back: Backward, region: Region) -> set[int]:
    tape, span = back.tape, (region.first, region.last)
    outs = {value for prim in tape.prims[region.first : region.last] for value in prim.outs}
    read = dict.fromkeys(value for prim in tape.prims[region.last :] for value in prim.ins if value in outs)
    given = {EXTERNAL, *region.inputs}
    results = tuple(dict.fromkeys(tape.store[value] for value in read if tape.store[value] not in given))
    again = run_again(back, span, region.inputs, results)
    incoming = {back.grads[value] for value in outs if value in back.grads}
    for storage in incoming:
        back.refs[storage] += 1
    back.run(*span, (*region.inputs, *results))
    for storage in incoming:
        back.release(storage)
    return again


def _remade(back: Backward, region: Region) -> set[int]:
    if region.reentrant:
        return _entered(back, region)
    prims = back.tape.prims
    saving = [at for at in range(region.first, region.last) if prims[at].saves]
    if not saving:
        back.run(region.first, region.last, region.inputs)
        return set()
    back.run(saving[-1] + 1, region.last)
    events = rerun(back, region.first, saving[-1])
    back.unpacked = True
    back.run(saving[0], saving[-1] + 1, region.inputs)
    back.unpacked = False
    back.run(region.first, saving[0])
    return {event - 1 for event in events if event > 0}
