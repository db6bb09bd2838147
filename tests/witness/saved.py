"""What is kept for backward when a forward is done, by part of the model: of a ledger, and of a trace.

A part is `embedding` (all before the first layer), a layer's number, or `head` (all after the last one). A tensor is
its dtype, bytes and dims. One and the same tensor is seen under several shapes on its way (a view folds or unfolds
dims, splits heads off, moves them), and the two sides may name it at different points of that way; so of tensors of
one dtype and size, two are the same if the dims of one, but those of one element and in any order, are those of the
other with some of them multiplied (`alike`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import prod

from trainledger.evidence.trace.lines import NAMES
from trainledger.evidence.trace.record import Record
from trainledger.ledger.rank import Ledger, payload
from trainledger.lines.line import Line
from trainledger.lines.stream import Segment

EMBEDDING, HEAD = "embedding", "head"
HANDED = "hidden states"  # the line of what a layer hands to the next
LAYER = re.compile(r"\.(?:layers|layer|h)\.(\d+)(?:\.|$)")
Tensor = tuple[str, int, tuple[int, ...]]  # dtype, bytes, sizes of its dims but those of one
Parts = dict[str, Counter[Tensor]]


def of_ledger(ledger: Ledger, layers: int) -> Parts:
    """Tensors alive at the end of the second step's forward that were born in it. Of one line's tensors those of the
    first step die first, then the newest; of hidden states, the one that came into the part."""
    alive: defaultdict[int, list[str]] = defaultdict(list)
    for part, events in _pieces(ledger.segments, layers):
        for event in events:
            if event > 0:
                alive[event - 1].append(part)
            else:
                _die(alive[-event - 1], part, ledger.lines[-event - 1].name == HANDED)
    found: Parts = defaultdict(Counter)
    for number, owners in alive.items():
        for part in owners:
            if part:
                found[part][_tensor(ledger.lines[number])] += 1
    return found


def _die(owners: list[str], part: str, handed: bool) -> None:
    if owners[0] == "":
        owners.pop(0)
    else:
        owners.pop(-2 if handed and len(owners) > 1 and owners[-1] == part else -1)


def _pieces(segments: Sequence[Segment], layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Runs of events up to the end of the second step's forward, with the part in which each is; none before."""
    ahead = 0
    for moment, events, repeat, _ in segments:
        if moment.startswith("step 2: backward"):
            return
        for _ in range(repeat):
            part = ""
            if moment == "step 2: forward":
                part = str(ahead - 1) if ahead else EMBEDDING
                ahead += 1
            elif moment == "step 2: loss":
                assert ahead == layers + 1
                part = HEAD
            yield part, events


def _tensor(line: Line) -> Tensor:
    return (line.dtype.name, payload(line), _sizes([axis.size for axis in line.dims]))


def of_record(record: Record) -> Parts:
    """The same of a trace: by the module that was running."""
    alive: dict[int, str] = {}
    part = EMBEDDING
    for moment, events in record.stretches:
        for event in events if moment in ("step 2: forward", "step 2: loss") else ():
            if event > 0:
                part = _part(record.births[event - 1].module, part)
                alive[event - 1] = part
            else:
                alive.pop(-event - 1, None)
    found: Parts = defaultdict(Counter)
    for number, where in alive.items():
        birth = record.births[number]
        found[where][(NAMES[birth.dtype].name, birth.size, _sizes(birth.shape))] += 1
    return found


def _part(module: str, before: str) -> str:
    layer = LAYER.search(module)
    if layer:
        return layer.group(1)
    return before if before == EMBEDDING else HEAD


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape if size > 1))


def differences(ours: Parts, theirs: Parts, hidden: Tensor) -> list[str]:
    """Every tensor that one side keeps and the other does not, with its part.

    Hidden states that are handed on are compared over all parts, since the ledger has one line for them, which does
    not say whose is kept: so of those like `hidden` as many may be missing in one part as are too many in another.
    """
    found: list[str] = []
    moved: Counter[bool] = Counter()
    for part in sorted(ours.keys() | theirs.keys()):
        left, right = _apart(ours[part], theirs[part])
        for alone, side in ((left, "formula"), (right, "trace")):
            for tensor in alone:
                if _same(tensor, hidden):
                    moved[side == "trace"] += 1
                else:
                    found.append(f"{part}: {side} alone {tensor}")
    if moved[True] != moved[False]:
        found.append(f"hidden states: formula alone {moved[False]}, trace alone {moved[True]}")
    return found


def _apart(ours: Counter[Tensor], theirs: Counter[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """What is left of both sides when each tensor has met its like: those of the same shape first."""
    left, right = list((ours - theirs).elements()), list((theirs - ours).elements())
    for tensor in tuple(left):
        other = next((one for one in right if _same(one, tensor)), None)
        if other is not None:
            left.remove(tensor)
            right.remove(other)
    return left, right


def _same(a: Tensor, b: Tensor) -> bool:
    return a[:-1] == b[:-1] and alike(a[-1], b[-1])


def alike(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether one shape is the other with dims folded into products."""
    fine, coarse = (a, b) if len(a) >= len(b) else (b, a)
    return folds(fine, coarse)


def folds(fine: tuple[int, ...], coarse: tuple[int, ...]) -> bool:
    """Whether the fine sizes fall into groups whose products are the coarse ones."""
    if not coarse:
        return not fine
    some = (group for count in range(1, len(fine) + 1) for group in combinations(range(len(fine)), count))
    return any(
        folds(tuple(size for at, size in enumerate(fine) if at not in group), coarse[1:])
        for group in some
        if prod(fine[at] for at in group) == coarse[0]
    )
