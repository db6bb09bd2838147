"""One micro-batch: forward, loss and backward of the whole model, as segments of line events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import INT64
from trainledger.ledger.blocks import Piece, Walked, Walker
from trainledger.ledger.book import AUTOGRAD, Book
from trainledger.ledger.edges import causal_mask, cross_entropy, head_program, rotary_tables
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.rules import Frame, lower
from trainledger.ledger.run import Run
from trainledger.ledger.tape import EXTERNAL, Prim, Tape
from trainledger.lines.line import Account
from trainledger.lines.stream import Segment
from trainledger.model.program import Attention, Block, Model, Weight

FORWARD, LOSS, BACKWARD = "forward", "loss", "backward"
Trained = Callable[[Weight], bool]
IDS = ("input_ids", "token_type_ids")


@dataclass(frozen=True, slots=True)
class Job:
    """What is walked: the book its lines go to, the model, the run, and which weights are trained."""

    book: Book
    model: Model
    run: Run
    trained: Trained

    def frame(self) -> Frame:
        """A new tape to write on."""
        return Frame(Tape(self.run.setting.autocast), self.run.setting, {}, self.trained, {})

    def line(self, account: Account, name: str, frame: Frame, value: int) -> int:
        """The line of a value that passes from one piece to another."""
        return self.book.tensor(account, name, frame.tape.dims[value], frame.tape.dtype[value], AUTOGRAD)


@dataclass(frozen=True, slots=True)
class Opening:
    """The prologue, walked: its frame and events, lines of the hidden state and its gradient, and of what the model's
    forward keeps by name (masks, positions, rotary tables)."""

    frame: Frame
    walked: Walked
    hidden: int
    gradient: int
    shared: dict[str, int]


@dataclass(frozen=True, slots=True)
class Micro:
    """A micro-batch as segments: forward with loss, then backward."""

    forward: tuple[Segment, ...]
    backward: tuple[Segment, ...]


def _opening(job: Job, leaves: Leaves) -> Opening:
    frame, model, setting = job.frame(), job.model, job.run.setting
    tape, names = frame.tape, frame.names
    tokens = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    for name in IDS:
        names[name] = tape.outside(tokens, INT64, False)
    tape.scope = "position ids"
    positions = tape.fresh((Axis(Dim.ONE, 1), tokens[1]), INT64, False)
    names["position_ids"] = tape.run(_source(positions))
    lower(frame, model.prologue)
    hidden = names["h"]
    if setting.attention == "eager" and model.causal:
        for name in sorted({mask_name(op.spec) for b in model.blocks for op in b.ops if isinstance(op.spec, Attention)}):
            causal_mask(frame, tape.dtype[hidden], name, boolean=False)
    rotary_tables(frame, model, tape.dtype[hidden])
    shared = {name: value for name, value in names.items() if name not in (*IDS, "h")}
    lines = {name: job.line(Account.ACTIVATIONS, name, frame, value) for name, value in shared.items()}
    line = job.line(Account.ACTIVATIONS, "hidden states", frame, hidden)
    slope = job.line(Account.BACKWARD, "gradient of hidden states", frame, hidden)
    known = {tape.store[hidden]: line} | {tape.store[shared[name]]: number for name, number in lines.items()}
    piece = Piece(tape, EXTERNAL, hidden, "", known, slope, slope, {})
    walked = Walker(job.book, piece, leaves.last).plain(frozenset(shared.values()))
    return Opening(frame, walked, line, slope, lines)


def mask_name(spec: Attention) -> str:
    """The name under which the model's forward keeps the mask of this attention."""
    return "mask_sliding" if spec.window else "mask"


def _block(job: Job, block: Block, opening: Opening, leaves: Leaves, first: bool) -> Walked:
    frame, pro = job.frame(), opening.frame
    tape = frame.tape
    hidden = pro.names["h"]
    trainable = pro.tape.grad[hidden]
    source = tape.inherit(pro.tape.dims[hidden], pro.tape.dtype[hidden], trainable, "hidden states")
    frame.names["h"] = source
    outside: dict[int, str] = {}
    for name in opening.shared:
        value = tape.outside(pro.tape.dims[pro.names[name]], pro.tape.dtype[pro.names[name]], False)
        frame.names[name] = value
        outside[value] = name
    lower(frame, block.ops)
    target = frame.names["h"]
    tape.end([source, *tape.cached.values(), *(value for value in frame.names.values() if value != target)])
    known = {tape.store[source]: opening.hidden, tape.store[target]: opening.hidden}
    prefix = f"{block.name}.*."
    piece = Piece(tape, source, target, prefix, known, opening.gradient, opening.gradient, outside)
    walker = Walker(job.book, piece, leaves.first)
    if job.run.recompute == "none":
        return walker.plain(frozenset({source}) if first else frozenset())
    return walker.recomputed(job.run.recompute == "reentrant")


def _layers(job: Job, opening: Opening, leaves: Leaves) -> list[tuple[Walked, int]]:
    """Every layer in order, equal neighbours counted. The first layer's input has a second name in the model."""
    order = sorted((index, number) for number, block in enumerate(job.model.blocks) for index in block.layers)
    kinds = [(number, position == 0) for position, (_, number) in enumerate(order)]
    walked = {
        kind: _block(job, job.model.blocks[kind[0]], opening, leaves, kind[1]) for kind in dict.fromkeys(kinds)
    }
    return [(walked[kind], len(list(group))) for kind, group in groupby(kinds)]


def _closing(job: Job, opening: Opening, leaves: Leaves, ending: list[int]) -> tuple[Walked, int]:
    """The head and the loss; `ending`: lines of what the model's own forward kept by name until it returned."""
    frame, pro = job.frame(), opening.frame
    tape, hidden = frame.tape, pro.names["h"]
    source = tape.inherit(pro.tape.dims[hidden], pro.tape.dtype[hidden], True, "hidden states")
    known = {tape.store[source]: opening.hidden}
    values = []
    for line in ending:
        values.append(tape.inherit((), INT64, False, ""))
        known[tape.store[values[-1]]] = line
    frame.names["h"] = source
    head_program(frame, job.model, values)
    loss = cross_entropy(frame, job.model, job.run.loss == "full-fp32")
    keep = frozenset({frame.names["logits"]}) if job.run.keeps_logits else frozenset()
    tape.end([value for value in frame.names.values()])
    tape.end(list(tape.cached.values()))
    known[tape.store[loss]] = job.line(Account.LOGITS, "loss", frame, loss)
    arriving = job.line(Account.LOGITS, "gradient of the loss", frame, loss)
    piece = Piece(tape, source, loss, "", known, arriving, opening.gradient, {})
    return Walker(job.book, piece, leaves.first).plain(keep), arriving


def _source(value: int) -> Prim:
    return Prim("arange", (), (value,), (), (), ())


def micro(job: Job, leaves: Leaves) -> Micro:
    """The segments of one micro-batch."""
    opening = _opening(job, leaves)
    layers = _layers(job, opening, leaves)
    saved = frozenset().union(*(walked.outside for walked, _ in layers))
    ending = [line for name, line in opening.shared.items() if name not in saved]
    if not layers[0][0].keeps_input:
        ending.append(opening.hidden)
    closing, arriving = _closing(job, opening, leaves, ending)
    forward = [Segment(FORWARD, opening.walked.forward)]
    forward += [Segment(FORWARD, walked.forward, count) for walked, count in layers]
    forward.append(Segment(LOSS, closing.forward))
    loose = tuple(event for walked, count in layers for event in walked.loose * count)
    forward.append(Segment(LOSS, (*loose, *closing.loose)))
    backward = [Segment("backward of the loss", (arriving + 1, *closing.backward))]
    for walked, count in reversed(layers):
        backward.append(Segment(BACKWARD, walked.backward, count))
    kept = tuple(-line - 1 for name, line in opening.shared.items() if name in saved)
    backward.append(Segment(BACKWARD, (*kept, *opening.walked.backward)))
    return Micro(tuple(forward), tuple(backward))
