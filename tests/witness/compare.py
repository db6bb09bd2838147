"""One layer of the ledger against the same layer of real code, storage by storage.

Both sides are lists of births and deaths of rounded storages. A birth agrees when its size agrees and so does the total
of everything born and not dead since the layer's first birth: a death at the wrong place shows at the next birth.

What lives only inside a kernel is compared apart, by how much each kernel takes: a trace knows it when the kernel has
returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.witness.runs import INSIDE, Case, record_of, seen
from trainledger.base.dims import Axis, Dim
from trainledger.evidence.trace.record import Record
from trainledger.facts.dtypes import BOOL, COMPLEX64, DTYPES, FP32
from trainledger.facts.masks import ALWAYS_MASKED
from trainledger.ledger.edges import ALIBI, TURNS
from trainledger.ledger.engine import Backward
from trainledger.ledger.frame import Frame
from trainledger.ledger.rules import lower
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.build import build
from trainledger.model.program import Attention, Model, Op


@dataclass(frozen=True)
class Event:
    """A birth (size > 0) or death (size < 0), rounded bytes; `total` counts from the layer's first event."""

    size: int
    total: int
    label: str


def mismatches(config: dict[str, Any], **case: Any) -> list[str]:
    """What differs in the forward and backward of one layer; empty when every storage agrees.

    `case` holds the fields of Case.
    """
    rows, kernels = side_by_side(config, **case)
    found = [
        f"{phase} {at}: {ours} | {theirs}"
        for phase, pairs in rows.items()
        for at, (ok, ours, theirs) in enumerate(pairs)
        if not ok
    ]
    return found + [f"{phase} inside kernels: {a} | {b}" for phase, (a, b) in kernels.items() if a != b]


Row = tuple[bool, Event | None, Event | None]


def side_by_side(
    config: dict[str, Any], **options: Any
) -> tuple[dict[str, list[Row]], dict[str, tuple[list[int], list[int]]]]:
    """By phase, every birth on both sides with whether they agree, and last the total at the layer's end; and what each
    kernel takes inside itself on both sides."""
    case = Case(**options)
    ours, kernels = walked(build(case.plan(config).keys()), config, case)
    record = record_of(config, case)
    rows = {phase: matched(mine, section(record, phase, case)) for phase, mine in ours.items()}
    return rows, {phase: (mine, inside(record, phase, case)) for phase, mine in kernels.items()}


def matched(ours: Sequence[Event], theirs: Sequence[Event]) -> list[Row]:
    """Births in pairs, in order; an agreeing pair has one size and one total."""
    pairs = zip_longest(*([event for event in side if event.size > 0] for side in (ours, theirs)))
    rows = [(bool(a and b and (a.size, a.total) == (b.size, b.total)), a, b) for a, b in pairs]
    ends = [Event(0, side[-1].total if side else 0, "end") for side in (ours, theirs)]
    return [*rows, (ends[0].total == ends[1].total, ends[0], ends[1])]


def summed(pairs: Sequence[tuple[int, str]]) -> list[Event]:
    """Signed sizes with their running total."""
    total, events = 0, []
    for size, label in pairs:
        total += size
        events.append(Event(size, total, label))
    return events


# ---- the ledger's side


def walked(model: Model, config: dict[str, Any], case: Case) -> tuple[dict[str, list[Event]], dict[str, list[int]]]:
    """The layer's events, forward and backward, as the ledger walks them, and what its kernels take inside."""
    block = next(block for block in model.blocks if case.layer in block.layers)
    tape, target = written(model, block.ops, config, case)
    forward = run_forward(tape, frozenset({target, *tape.cached.values()}), True)
    backward = Backward(tape, dict(forward.held), frozenset())
    backward.seed(target, "gradient of h")
    backward.run(0, len(tape.prims))
    both = {"forward": forward.events, "backward": backward.events}
    stored = {phase: named(tape, events) for phase, events in both.items()}
    kernels = {phase: taken(size for size, name in rows if INSIDE in name) for phase, rows in stored.items()}
    return {phase: labelled(tape, events) for phase, events in both.items()}, kernels


def opened(model: Model, ops: tuple[Op, ...], config: dict[str, Any], case: Case) -> Frame:
    """A frame with what a layer is given: its input `h`, rotary tables, and the masks that its model makes."""
    setting = case.setting(config)
    tape = Tape(setting.autocast)
    sequence, one = Axis(Dim.SEQUENCE, case.sequence), Axis(Dim.ONE, 1)
    dtype = DTYPES[case.weights]
    names = {"h": tape.inherit((Axis(Dim.BATCH, case.batch), sequence, model.hidden), dtype, True, "h")}
    if model.rotary:
        kept = FP32 if model.rotary.high else dtype
        names[TURNS] = tape.outside((one, sequence, one, Axis(Dim.ROPE_DIM, model.rotary.dim // 2)), COMPLEX64, False)
        for kind in model.rotary.sets:
            width = model.rotary.width(kind) // (2 if model.rotary.half else 1)
            table = (one, sequence, one, Axis(Dim.ROPE_DIM, width))
            names[f"cos{kind}"] = tape.outside(table, kept, False)
            names[f"sin{kind}"] = tape.outside(table, kept, False)
    alibi, each = model.handed.alibi, Axis(Dim.BATCH, case.batch)
    if alibi is not None:
        heads, keys = Axis(Dim.HEADS, alibi.heads), Axis(Dim.KEY_SEQUENCE, case.sequence)
        names[ALIBI] = tape.outside((each, heads, one, keys), FP32 if alibi.keys else dtype, False)
    if alibi is not None and alibi.masks:
        names["mask"] = tape.outside((each, heads, sequence, keys), dtype, False)
    elif ALWAYS_MASKED.holds(model.family, setting.transformers) and case.kernel != "eager":
        names["mask"] = tape.outside((each, one, sequence, Axis(Dim.KEY_SEQUENCE, case.sequence)), BOOL, False)
    elif case.kernel == "eager" and model.causal:
        scores = (one, one, sequence, Axis(Dim.KEY_SEQUENCE, case.sequence))
        names["mask"] = tape.outside(scores, BOOL if alibi and alibi.filled else dtype, False)
        names["mask_sliding"] = names["mask_chunked"] = tape.outside(scores, dtype, False)
    elif any(isinstance(op.spec, Attention) and 0 < op.spec.window <= case.sequence for op in ops):
        scores = (Axis(Dim.BATCH, case.batch), one, sequence, Axis(Dim.KEY_SEQUENCE, case.sequence))
        kind = dtype if case.kernel == "eager" else BOOL
        names["mask_sliding"] = names["mask_chunked"] = tape.outside(scores, kind, False)
    return Frame(tape, setting, names, lambda weight: True, {}, software=Software(family=model.family))


def written(model: Model, ops: tuple[Op, ...], config: dict[str, Any], case: Case) -> tuple[Tape, int]:
    """The layer on a tape, and the value of the hidden state that leaves it."""
    frame = opened(model, ops, config, case)
    lower_layer(frame, ops)
    return frame.tape, frame.names["h"]


def lower_layer(frame: Frame, ops: tuple[Op, ...]) -> None:
    """Write a layer; its input and what its code names live at least as long."""
    hidden = frame.names["h"]
    lower(frame, ops)
    frame.tape.end([hidden, *(value for name, value in frame.names.items() if name != "h")])


def named(tape: Tape, events: list[int]) -> list[tuple[int, str]]:
    """Signed sizes of storages, and their names."""
    stored = [(1 if event > 0 else -1, tape.storages[abs(event) - 1]) for event in events]
    return [(sign * one.size, one.name) for sign, one in stored]


def labelled(tape: Tape, events: list[int]) -> list[Event]:
    """Events of storages by name, without what lives only inside a kernel."""
    return summed([(size, name) for size, name in named(tape, events) if INSIDE not in name])


def taken(sizes: Iterable[int]) -> list[int]:
    """The most that each kernel takes inside itself, in order: all of one's dies before the next one's is born."""
    found: list[int] = []
    total = 0
    for size in sizes:
        if not total:
            found.append(0)
        total += size
        found[-1] = max(found[-1], total)
    return found


# ---- the real code's side


def inside(record: Record, phase: str, case: Case) -> list[int]:
    """What the layer's kernels take inside themselves in a phase."""
    layer = f"{case.prefix}{case.layer}."
    return taken(one.size for one in seen(record, phase) if one.inside and f"{one.birth.module}.".startswith(layer))


def section(record: Record, phase: str, case: Case) -> list[Event]:
    """The layer's events in a phase of the traced run's second step: from its first birth to the next elsewhere."""
    layer = f"{case.prefix}{case.layer}"
    events = [one for one in seen(record, phase) if not one.inside]
    mine = [at for at, one in enumerate(events) if one.size > 0 and f"{one.birth.module}.".startswith(layer + ".")]
    last = next((at for at, one in enumerate(events) if one.size > 0 and at > mine[-1]), len(events))
    rows = [(one.size, f"{one.birth.module.removeprefix(layer)} {one.birth.op}") for one in events[mine[0] : last]]
    return summed(rows)
