"""Parts of a block that are recomputed on their own: a checkpointed module among others that keep what they save.

Source: torch/utils/checkpoint.py (v2.4 to v2.13), without reentrance: the part's input tensors are kept, its forward
runs again at the first saved tensor that backward asks for, and stops at the last one it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.ledger.engine import Backward, rerun
from trainledger.ledger.tape import EXTERNAL, Tape

Mark = tuple[str, int, int]  # an operation's name, its first primitive, and the one after its last


class Region(NamedTuple):
    """A part of a tape: its first primitive, the one after its last, and the storages that it is handed."""

    first: int
    last: int
    inputs: tuple[int, ...]


def regions_of(tape: Tape, marks: Sequence[Mark], modules: Sequence[str]) -> tuple[Region, ...]:
    """Runs of operations that belong to one of these modules (by name or by the start of a dotted name)."""
    found: list[Region] = []
    for module in dict.fromkeys(_module(name, modules) for name, _, _ in marks):
        spans = [(first, last) for name, first, last in marks if module and _module(name, modules) == module]
        if spans and spans[0][0] < spans[-1][1]:
            found.append(_region(tape, spans[0][0], spans[-1][1]))
    return tuple(sorted(found))


def _module(name: str, modules: Sequence[str]) -> str:
    return next((module for module in modules if name == module or name.startswith(f"{module}.")), "")


def _region(tape: Tape, first: int, last: int) -> Region:
    prims = tape.prims[first:last]
    made = {value for prim in prims for value in prim.outs}
    cached = set(tape.cached.values())
    handed = dict.fromkeys(
        tape.store[value] for prim in prims for value in prim.ins if value not in made and value not in cached
    )
    own = {tape.store[value] for value in made}
    return Region(first, last, tuple(one for one in handed if one != EXTERNAL and one not in own))


def run_back(back: Backward, regions: Sequence[Region]) -> frozenset[int]:
    """The whole tape's backward; returns the storages that a region's forward made once more."""
    last, again = len(back.tape.prims), set[int]()
    for region in reversed(regions):
        back.run(region.last, last)
        again |= _remade(back, region)
        last = region.first
    back.run(0, last)
    return frozenset(again)


def _remade(back: Backward, region: Region) -> set[int]:
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
