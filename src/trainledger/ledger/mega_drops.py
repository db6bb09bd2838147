"""Which saved tensors of a Megatron-Core layer are emptied in forward: those of modules that run again without keeping
their output, and those that go to the host.

Source: facts/megatron_offload.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainledger.base.dims import elements
from trainledger.facts.megatron_offload import OFFLOAD, UP, UP_END, UP_FIRST, UP_LAST, Span
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.regions import Mark, Region
from trainledger.ledger.tape import EXTERNAL, Dropped, Tape

Spans = list[tuple[int, int]]
# modules whose weights' gradients may come after their others: before the dispatch's backward, at the layer's end
DELAYED = ("mlp.linear_fc", "mlp.experts", "self_attention.")


def put_off(f: Frame) -> Spans:
    """Spans of primitives whose weights' gradients come later.

    Source: megatron/core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run (0.14 to 0.19).
    """
    found: Spans = []
    for name in DELAYED:
        spans = [(first, last) for mark, first, last in f.marks if mark.startswith(name) and first < last]
        if spans:
            found.append((min(first for first, _ in spans), max(last for _, last in spans)))
    return found


def drops(f: Frame, modules: Sequence[str], regions: Sequence[Region], leaf: int) -> list[Dropped]:
    """What is emptied on this tape; `modules` run again; `leaf`: an input that others hold (EXTERNAL: none)."""
    made = [one for one in _remade(f, modules) if not _within(one, regions)]
    found, hosted = list(made), mega_of(f).hosted
    if hosted is not None:
        taken = {storage for one in made for storage in one.storages} | {
            f.tape.store[leaf] for _ in (leaf,) if leaf >= 0
        }
        parts = [(one.first, one.last, one.inputs) for one in made] + [
            (one.first, one.last, one.inputs) for one in regions
        ]
        groups = [group for row in OFFLOAD.spans if row.name in hosted.modules for group in _groups(f.marks, row)]
        for spans, end in sorted(groups, key=lambda group: -group[1]):
            saved = dict.fromkeys(one for first, last in spans for one in _saved(f.tape, (first, last), parts))
            gone = [one for one in saved if one not in taken and _large(f.tape, one, hosted.least)]
            taken |= set(gone)
            found.append(Dropped(end, end, end, tuple(gone)))
    return found


def _within(one: Dropped, regions: Sequence[Region]) -> bool:
    """Whether a part that is made again lies in a module that runs again whole: there is nothing of it to empty."""
    return any(region.first <= one.first and one.end < region.last for region in regions)


def _large(tape: Tape, storage: int, least: int) -> bool:
    return elements(tape.storages[storage].dims) >= least


def _remade(f: Frame, modules: Sequence[str]) -> Iterator[Dropped]:
    for row in (one for one in OFFLOAD.remade if one.name in modules):
        for spans, end in _groups(f.marks, row):
            for first, last in spans:
                yield _dropped(f.tape, first, last, end)
    if UP in modules:
        starts, ends, readers = ([mark for mark in f.marks if mark[0] == name] for name in (UP_FIRST, UP_LAST, UP_END))
        for (_, _, first), (_, _, last), (_, _, end) in zip(starts, ends, readers, strict=True):
            yield _dropped(f.tape, first - 1, last, end - 1)


def _groups(marks: Sequence[Mark], row: Span) -> Iterator[tuple[Spans, int]]:
    """Each occurrence of a module: its primitives, and the one after which its tensors go."""
    spans: Spans = []
    for name, first, last in marks:
        own = name.startswith(row.operations) if row.operations.endswith(".") else name == row.operations
        if own and name not in row.but and first < last:
            spans.append((first, last))
        if name == row.end and spans:
            yield spans, (first if row.before else last) - 1
            spans = []


def _dropped(tape: Tape, first: int, last: int, end: int) -> Dropped:
    """A part whose results are emptied after `end`: those that anything after it reads."""
    inner = tape.prims[first:last]
    there = {tape.store[value] for prim in tape.prims[:first] for value in prim.outs} | {*tape.inherited}
    made = {tape.store[value] for prim in inner for value in prim.outs} - there
    read = dict.fromkeys(tape.store[value] for prim in tape.prims[last:] for value in prim.ins)
    handed = dict.fromkeys(tape.store[value] for prim in inner for value in prim.ins)
    results = tuple(one for one in read if one in made and one != EXTERNAL)
    return Dropped(first, last, end, results, tuple(one for one in handed if one not in made and one != EXTERNAL))


def _saved(tape: Tape, span: tuple[int, int], parts: Sequence[tuple[int, int, tuple[int, ...]]]) -> Iterator[int]:
    """The storages that autograd keeps of these primitives; of a part that runs again what it is handed."""
    for at in range(*span):
        part = next((one for one in parts if one[0] <= at < one[1]), None)
        if part is None:
            yield from (tape.store[value] for value in tape.prims[at].saves if tape.store[value] != EXTERNAL)
        elif part[0] == at or at == span[0]:
            yield from part[2]
