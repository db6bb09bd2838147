"""Saved tensors whose storage is emptied before a module ends, and filled again as its backward begins.

They are computed once more (an output-discarding checkpoint), or fetched from the host. Who saved them holds the empty
tensor meanwhile. Sources: megatron/core/tensor_parallel/random.py, CheckpointWithoutOutput; pipeline_parallel/
fine_grained_activation_offload.py (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trainledger.ledger.engine import Backward
from trainledger.ledger.regions import Region, regions_back, run_again
from trainledger.ledger.tape import Dropped


class Cut(NamedTuple):
    """A place in backward: before primitives from `at` on have run, a drop ends (its tensors are there again) or a
    region runs; of cuts at one place the lower `rank` comes first."""

    at: int
    rank: int
    number: int


def run_back(back: Backward, regions: Sequence[Region]) -> frozenset[int]:
    """The whole tape's backward; returns the storages that were made once more."""
    dropped = back.tape.dropped
    if not dropped:
        return regions_back(back, regions)
    cuts = [Cut(-one.end - 1, one.first < one.last, at) for at, one in enumerate(dropped)]
    cuts += [Cut(-one.last, len((False, True)), at) for at, one in enumerate(regions)]
    again, last = set[int](), len(back.tape.prims)
    inner = {one.last: one for one in dropped if one.first < one.last}
    for cut in sorted(cuts):
        last = _run(back, (-cut.at, last), inner)
        if cut.rank > 1:
            again |= regions_back(back, regions[cut.number : cut.number + 1], (regions[cut.number].first, last))
            last = regions[cut.number].first
            continue
        one = dropped[cut.number]
        if one.first < one.last:
            again |= run_again(back, (one.first, one.last), one.inputs, one.storages)
        else:
            again |= _fetched(back, one)
    _run(back, (0, last), inner)
    return frozenset(again)


def _run(back: Backward, span: tuple[int, int], inner: dict[int, Dropped]) -> int:
    """Nodes from the end of the span to its start; those of a part that was made again let go of what it was handed
    and of its own results with the first of them."""
    first, last = span
    for one in sorted(inner.values(), reverse=True):
        if first <= one.first and one.last <= last:
            back.run(one.last, last)
            held = tuple(storage for storage in one.inputs + one.storages if storage in back.held)
            back.run(one.first, one.last, held)
            last = one.first
    if first < last:
        back.run(first, last)
        last = first
    return last


def _fetched(back: Backward, one: Dropped) -> set[int]:
    """Tensors of the host are there again."""
    there = [storage for storage in one.storages if storage in back.held]
    back.events += [storage + 1 for storage in there]
    return set(there)
