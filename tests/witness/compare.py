"""One layer of the ledger against the same layer of real code, storage by storage.

Both sides are lists of births and deaths of rounded storages. A birth agrees when its size agrees and so does the total
of everything born and not dead since the layer's first birth: a death at the wrong place shows at the next birth.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from tests.witness.tracer import Trace, rounded, trace
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BOOL, DTYPES, FP32
from trainledger.ledger.engine import Backward
from trainledger.ledger.rules import Frame, Setting, lower
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.build import build
from trainledger.model.program import Attention, Model, Op

# Alive only inside a kernel: an allocator on a device sees them, a trace of the calls does not.
INSIDE_KERNELS = ("kernel: ",)
# What makes the ledger run the kernel that the tracer prefers: the plan's word for attention, and an architecture.
PREFERS = {"flash": ("sdpa", ""), "cudnn": ("sdpa", "sm90"), "efficient": ("mem-efficient", ""), "math": ("math", "")}
TORCH = "2.13"  # whose kernels the tracer emulates


@dataclass(frozen=True)
class Event:
    """A birth (size > 0) or death (size < 0), rounded bytes; `total` counts from the layer's first event."""

    size: int
    total: int
    label: str


@dataclass(frozen=True)
class Case:
    """One run: what is traced, and which layer of it is compared. `prefix` is the layers' path with its last dot.

    `head`, `kernel` and `sees` (the batch's tensors) are as in the tracer.
    """

    prefix: str = "model.layers."
    layer: int = 1
    batch: int = 1
    sequence: int = 32
    weights: str = "bf16"
    autocast: str | None = None
    attention: str = "sdpa"
    kernel: str = "flash"
    head: str = "CausalLM"
    sees: tuple[str, ...] = ("input_ids", "labels")

    @property
    def setting(self) -> Setting:
        """The same run in the ledger's terms."""
        dtype = DTYPES[self.weights]
        low = DTYPES[self.autocast] if self.autocast else None
        word, architecture = PREFERS[self.kernel] if self.attention == "sdpa" else (self.attention, "")
        run = Setting(self.batch, self.sequence, word, dtype, dtype, low)
        return replace(run, torch=TORCH, architecture=architecture)


def mismatches(config: dict[str, Any], **case: Any) -> list[str]:
    """What differs in the forward and backward of one layer; empty when every storage agrees.

    `case` holds the fields of Case: prefix, layer, batch, sequence, weights, autocast, attention, kernel, head.
    """
    return [
        f"{phase} {at}: {ours} | {theirs}"
        for phase, rows in side_by_side(config, **case).items()
        for at, (ok, ours, theirs) in enumerate(rows)
        if not ok
    ]


Row = tuple[bool, Event | None, Event | None]


def side_by_side(config: dict[str, Any], **options: Any) -> dict[str, list[Row]]:
    """By phase, every birth on both sides with whether they agree, and last the total at the layer's end."""
    case = Case(**options)
    ours = walked(build(config), case)
    real = traced(config, case)
    return {phase: matched(ours[phase], real[phase]) for phase in ours}


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


def walked(model: Model, case: Case) -> dict[str, list[Event]]:
    """The layer's events, forward and backward, as the ledger walks them."""
    block = next(block for block in model.blocks if case.layer in block.layers)
    tape, target = written(model, block.ops, case)
    forward = run_forward(tape, frozenset({target, *tape.cached.values()}), True)
    backward = Backward(tape, dict(forward.held), frozenset())
    backward.seed(target, "gradient of h")
    backward.run(0, len(tape.prims))
    return {"forward": labelled(tape, forward.events), "backward": labelled(tape, backward.events)}


def written(model: Model, ops: tuple[Op, ...], case: Case) -> tuple[Tape, int]:
    """The layer on a tape, and the value of the hidden state that leaves it."""
    tape = Tape(case.setting.autocast)
    sequence, one = Axis(Dim.SEQUENCE, case.sequence), Axis(Dim.ONE, 1)
    dtype = DTYPES[case.weights]
    hidden = tape.inherit((Axis(Dim.BATCH, case.batch), sequence, model.hidden), dtype, True, "h")
    names: dict[str, int] = {}
    if model.rotary:
        table = (one, sequence, one, Axis(Dim.ROPE_DIM, model.rotary.dim))
        kept = FP32 if model.rotary.high else dtype
        for kind in model.rotary.sets:
            names[f"cos{kind}"] = tape.outside(table, kept, False)
            names[f"sin{kind}"] = tape.outside(table, kept, False)
    if case.attention == "eager" and model.causal:
        scores = (one, one, sequence, Axis(Dim.KEY_SEQUENCE, case.sequence))
        names["mask"] = tape.outside(scores, dtype, False)
        names["mask_sliding"] = tape.outside(scores, dtype, False)
    elif any(isinstance(op.spec, Attention) and 0 < op.spec.window <= case.sequence for op in ops):
        scores = (Axis(Dim.BATCH, case.batch), one, sequence, Axis(Dim.KEY_SEQUENCE, case.sequence))
        names["mask_sliding"] = tape.outside(scores, BOOL, False)
    bound = {"h": hidden, **names}
    lower(Frame(tape, case.setting, bound, lambda weight: True, {}), ops)
    tape.end([hidden, *(value for name, value in bound.items() if name != "h")])
    return tape, bound["h"]


def labelled(tape: Tape, events: list[int]) -> list[Event]:
    """Events of storages by name, without what lives only inside a kernel."""
    stored = [(1 if event > 0 else -1, tape.storages[abs(event) - 1]) for event in events]
    return summed([(sign * s.size, s.name) for sign, s in stored if not any(k in s.name for k in INSIDE_KERNELS)])


# ---- the real code's side


def traced(config: dict[str, Any], case: Case) -> dict[str, list[Event]]:
    """The same layer's events in the second step of a traced run."""
    found = run(repr(sorted(config.items())), case)
    return {name: section(found, name, f"{case.prefix}{case.layer}") for name in ("forward", "backward")}


@lru_cache(maxsize=4)
def run(config: str, case: Case) -> Trace:
    """One traced run; kept for the comparison of another of its layers."""
    same = ("batch", "sequence", "weights", "autocast", "attention", "kernel", "head")
    options = {name: getattr(case, name) for name in same}
    return trace(dict(literal_eval(config)), batch_tensors=case.sees, **options)


def section(found: Trace, phase: str, layer: str) -> list[Event]:
    """From the layer's first birth to the next birth elsewhere."""
    events = found.phase(phase, step=1).events
    mine = [at for at, e in enumerate(events) if e.size > 0 and (e.module == layer or e.module.startswith(layer + "."))]
    last = next((at for at, e in enumerate(events) if e.size > 0 and at > mine[-1]), len(events))
    return summed([(rounded(e.size), f"{e.module.removeprefix(layer)} {e.op}") for e in events[mine[0] : last]])
