"""One operator by itself, estimated by its rule: what a published benchmark of it peaks at."""

from __future__ import annotations

import struct
from dataclasses import replace

from trainledger.base.dims import elements
from trainledger.base.units import MIB
from trainledger.facts.allocator import CUDA
from trainledger.facts.operator_runs import HARNESSES, Harness
from trainledger.facts.versions import at_least
from trainledger.ledger.engine import Backward
from trainledger.ledger.operator_table import WRITERS
from trainledger.ledger.operator_tools import workspace
from trainledger.ledger.operator_writers import ABOVE_INPUTS, OperatorRun, Written
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import first_birth, run_forward

__all__ = ["OperatorRun", "operator_peak"]

FORWARD, BACKWARD = "forward", "backward"
THREADS = (FORWARD, BACKWARD)  # each has a workspace of its own for matrix products
SINGLE = "f"  # float32, as struct names it


def operator_peak(run: OperatorRun) -> int | None:
    """Bytes at the operator's peak; None where the program lacks the operator, its implementation or its benchmark.

    `allocated_peak` counts what the benchmark's process holds besides: inputs, weights, their gradients.
    """
    writer, harness = WRITERS.get((run.operator, run.implementation)), HARNESSES.get(run.operator)
    if writer is None or harness is None:
        return None
    try:
        written = writer(run)
    except (KeyError, TypeError, ValueError):
        return None  # the record does not say what the operator needs
    if harness.more and run.release and at_least(run.release, harness.more):
        harness = replace(harness, modules=harness.modules + 1)
    space = workspace(run.device, harness.architecture) if written.products else 0
    ahead, behind, saved = _walked(written, harness, run.metric == ABOVE_INPUTS, space)
    if run.metric == ABOVE_INPUTS:
        peaks = {FORWARD: ahead, BACKWARD: behind}
        return peaks.get(run.passes, max(ahead, saved + behind))
    if harness.modes and run.passes == FORWARD:
        return _printed(_made(written, harness, space) + ahead, harness)
    return _printed(_held(written, harness, space) + max(ahead, saved + behind), harness)


def _printed(size: int, harness: Harness) -> int:
    """Bytes as the benchmark prints them."""
    if not harness.single:
        return size
    mib: float = struct.unpack(SINGLE, struct.pack(SINGLE, size / MIB))[0]
    return round(mib * MIB)


def _block(size: int, harness: Harness) -> int:
    """Bytes of the block that a request takes in the benchmark's process."""
    return CUDA.rounded(size) if harness.warm else CUDA.block(size)


def _total(t: Tape, values: tuple[int, ...], harness: Harness) -> int:
    return sum(_block(t.dtype[value].bytes_of(elements(t.dims[value])), harness) for value in values)


def _made(written: Written, harness: Harness, space: int) -> int:
    """What a process that runs forward alone holds; speed was measured in it before, with both threads' workspaces."""
    t = written.tape
    total = _total(t, written.inputs, harness)
    total += _total(t, written.weights, harness) * max(harness.modules, 1)
    return total + sum(_block(size, harness) for size in written.given) + space * len(THREADS)


def _held(written: Written, harness: Harness, space: int) -> int:
    """What is there all the time: inputs, weights and their gradients, the gradients handed in, what is given."""
    t = written.tape
    inputs, weights = _total(t, written.inputs, harness), _total(t, written.weights, harness)
    scalar = all(elements(t.dims[value]) == 1 for value in written.results)
    handed = 0 if scalar or written.drawn else inputs  # a gradient like the input
    before = not written.first  # gradients from earlier repetitions
    total = inputs + handed + (inputs if before and not (written.over or harness.returns) else 0)
    total += weights * max(harness.modules, 1) + (weights if before else 0)
    total += sum(_block(size, harness) for size in written.given)
    # without a backward product, or before the first one, there is but one thread's workspace
    threads = THREADS if written.weights and before else THREADS[:1]
    return total + space * len(threads)


def _walked(written: Written, harness: Harness, fresh: bool, space: int) -> tuple[int, int, int]:
    """Peaks of forward and of backward above what was there before each, and what forward leaves.

    `fresh`: gradients of inputs and weights do not exist yet, so that new ones stay. `space`: bytes of a workspace,
    which a first repetition's backward takes at its first product.
    """
    t = written.tape
    forward = run_forward(t, frozenset((*written.results, *written.kept)), True)
    named = frozenset(t.store[value] for value in written.kept)
    back = Backward(t, dict(forward.held), frozenset(forward.held) if harness.retains else named)
    stays = fresh or written.first or harness.returns
    back.leaf = (lambda weight, storage: []) if stays else (lambda weight, storage: [-storage - 1])
    for value in written.results:
        # the one handed in stays; where it is cast, so does the cast, which the graph's root holds
        scalar = elements(t.dims[value]) == 1
        storage = back.seed(value, "gradient of the result", 1)
        if scalar or written.drawn or t.dtype[value] != t.dtype[written.inputs[0]]:
            back.events.append(storage + 1)
    back.run(0, len(t.prims))
    units = [_block(storage.size, harness) for storage in t.storages]
    if written.first and back.products:
        units.append(space)
        back.events.insert(first_birth(back.events, back.products) - 1, len(units))
    high, left = _high(forward.events, units)
    return high, _high(back.events, units)[0], left


def _high(events: list[int], units: list[int]) -> tuple[int, int]:
    total = high = 0
    for event in events:
        total += units[event - 1] if event > 0 else -units[-event - 1]
        high = max(high, total)
    return high, total
