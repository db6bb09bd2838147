"""A compiled layer within a budget of memory: which results its forward keeps, all others being made again.

The least that can be kept is the layer's input (0), the most what compiled code keeps without a budget (1). Of products
and attention those are kept that hold the most operations within the budget; what lies between is made again of them.
Source: torch/_functorch/partitioners.py, choose_saved_values_set, estimate_runtime (v2.6 to v2.13); torchtitan,
distributed/activation_checkpoint.py, MemoryBudgetAC (b27638732).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations

from trainledger.base.dims import Dim, elements
from trainledger.facts.limits import CHOICES
from trainledger.facts.torchtitan import BUDGET
from trainledger.ledger.inductor import needed_again
from trainledger.ledger.tape import EXTERNAL, PRODUCTS, Prim, Tape

ATTENTION = "sdpa"


def budget_of(policy: str | None) -> float | None:
    """The budget of the policy `memory budget 0.5`; None for another policy or none."""
    match = re.fullmatch(BUDGET.pattern, policy) if policy else None
    return float(match.group(1)) if match else None


def kept_within(tape: Tape, budget: float) -> frozenset[int]:
    """The primitives of a compiled layer whose results are kept."""
    outside = {EXTERNAL, *tape.inherited}
    saved = {value for prim in tape.prims for value in prim.saves if tape.store[value] not in outside}
    most = sum(tape.storages[tape.store[value]].size for value in saved)  # a tensor and its view count both
    needed = needed_again(tape, ())
    heavy = [at for at, prim in enumerate(tape.prims) if at in needed and (prim.kind in PRODUCTS or _attends(prim))]
    sizes = {at: sum(tape.storages[one].size for one in _made(tape, tape.prims[at]) - outside) for at in heavy}
    if sum(sizes.values()) <= budget * most:
        return frozenset(heavy)
    work = {at: _operations(tape, tape.prims[at]) for at in heavy}
    return frozenset(_best(heavy, sizes, work, budget * most))


def _best(heavy: Sequence[int], sizes: dict[int, int], work: dict[int, int], room: float) -> Iterable[int]:
    """Those of the most operations that fit; of many the densest first."""
    if len(heavy) > CHOICES.value:
        chosen, left = list[int](), room
        for at in sorted(heavy, key=lambda one: -work[one] / max(sizes[one], 1)):
            if sizes[at] <= left:
                chosen.append(at)
                left -= sizes[at]
        return chosen
    groups = (group for count in range(len(heavy) + 1) for group in combinations(heavy, count))
    fitting = (group for group in groups if sum(sizes[at] for at in group) <= room)
    return max(fitting, key=lambda group: sum(work[at] for at in group))


def _attends(prim: Prim) -> bool:
    return prim.kind == ATTENTION


def _made(tape: Tape, prim: Prim) -> set[int]:
    return {tape.store[value] for value in prim.outs}


def _operations(tape: Tape, prim: Prim) -> int:
    """Multiplications of a product; of attention, of both its products over all of the sequence."""
    x = tape.dims[prim.ins[0]]
    if not _attends(prim):
        return elements(tape.dims[prim.outs[0]]) * x[-1].size
    keys = next((one.size for one in tape.dims[prim.ins[1]] if one.dim is Dim.SEQUENCE), 1)
    return (elements(x) + elements(tape.dims[prim.outs[0]])) * keys
