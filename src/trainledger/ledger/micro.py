"""One micro-batch: forward, loss and backward of the whole model, as segments of line events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import INT64, DType
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.peft import scales_inside
from trainledger.ledger.arrange import Pieces
from trainledger.ledger.blocks import Piece, Walked, Walker
from trainledger.ledger.book import AUTOGRAD, Book
from trainledger.ledger.edges import causal_mask, position_ids, rotary_tables
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.losses import closing_program
from trainledger.ledger.losses_pairs import CHOSEN
from trainledger.ledger.regions import regions_of
from trainledger.ledger.rules import Frame, asked, lower
from trainledger.ledger.rules_liger import for_family
from trainledger.ledger.run import Run
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.lines.kernel_choice import given_masks
from trainledger.lines.line import Account
from trainledger.model.program import Attention, Block, Model, Weight

Trained = Callable[[Weight], bool]
IDS = ("input_ids", "token_type_ids")
NAMED = ("loss", "logits", CHOSEN)


@dataclass(frozen=True, slots=True)
class Job:
    """What is walked: the book its lines go to, the model, the run, and which weights are trained."""

    book: Book
    model: Model
    run: Run
    trained: Trained

    def frame(self) -> Frame:
        """A new tape to write on."""
        run, software = self.run, for_family(self.run.software, self.model.family)
        tape = Tape(run.setting.autocast, software.device)
        return Frame(tape, run.setting, {}, self.trained, {}, software=software)

    def line(self, account: Account, name: str, frame: Frame, value: int) -> int:
        """The line of a value that passes from one piece to another: of its storage, which a view may repeat."""
        made = frame.tape.storages[frame.tape.store[value]]
        return self.book.tensor(account, name, made.dims, made.dtype, AUTOGRAD)


@dataclass(frozen=True, slots=True)
class Opening:
    """The prologue, walked: its frame and events, lines of the hidden state and its gradient, and of what the model's
    forward keeps by name (masks, positions, rotary tables); `free` of these are not held by the prologue's autograd."""

    frame: Frame
    walked: Walked
    hidden: int
    gradient: int
    shared: dict[str, int]
    free: dict[str, int]

    @property
    def is_leaf(self) -> bool:
        """Whether the hidden state itself is a leaf of the graph."""
        return self.frame.names["h"] in self.frame.tape.leaves


def _opening(job: Job, leaves: Leaves) -> Opening:
    frame, model, setting = job.frame(), job.model, job.run.setting
    tape, names = frame.tape, frame.names
    tokens = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    for name in IDS:
        names[name] = tape.outside(tokens, INT64, False)
    position_ids(frame, model)
    scaled = scales_inside(model.family, setting.transformers)
    lower(frame, asked(model.prologue, scaled) if job.run.asks_inputs(model) else model.prologue)
    hidden = names["h"]
    _masks(frame, model, tape.dtype[hidden])
    rotary_tables(frame, model, tape.dtype[hidden])
    shared = {name: value for name, value in names.items() if name not in (*IDS, "h") and value not in tape.leaves}
    lines = {name: job.line(Account.ACTIVATIONS, name, frame, value) for name, value in shared.items()}
    line = job.line(Account.ACTIVATIONS, "hidden states", frame, hidden)
    slope = job.line(Account.BACKWARD, "gradient of hidden states", frame, hidden)
    known = {tape.store[hidden]: line} | {tape.store[shared[name]]: number for name, number in lines.items()}
    leaf = next(iter(tape.leaves), EXTERNAL)
    piece = Piece(tape, EXTERNAL, hidden, "", known, slope, slope, {}, leaf, frame.calls)
    walked = Walker(job.book, piece, leaves.last).plain(frozenset(shared.values()))
    free = {name: number for name, number in lines.items() if tape.store[shared[name]] not in walked.held}
    return Opening(frame, walked, line, slope, lines, free)


def _masks(frame: Frame, model: Model, dtype: DType) -> None:
    """The masks that the model's forward makes: all of them for eager attention; for PyTorch's own call those of
    windows that some token's past exceeds; none for other kernels."""
    setting = frame.setting
    boolean = given_masks(setting.attention)
    if not model.causal or not (boolean or setting.attention == Kernel.EAGER):
        return
    specs = [op.spec for block in model.blocks for op in block.ops if isinstance(op.spec, Attention)]
    needed = [spec for spec in specs if not boolean or 0 < spec.window <= setting.sequence]
    for name in sorted({spec.mask_name for spec in needed}):
        causal_mask(frame, dtype, name, boolean)


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes two layers equal: their block, whether the model's own name holds the input (the first layer's),
    whether the input needs a gradient, its dtype, and how the layer is recomputed."""

    block: int
    first: bool
    grad: bool
    dtype: DType
    recompute: str


def _passed(model: Model, block: Block, opening: Opening) -> list[str]:
    """The shared names that a layer is given: all but those of the embedding that none of its operations reads."""
    made = {out for op in model.prologue for out in op.outs} - {name for op in block.ops for name in op.ins}
    return [name for name in opening.shared if name not in made]


def _edge(job: Job, opening: Opening, dtype: DType) -> tuple[int, int]:
    """Lines of hidden states between layers in this dtype, and of their gradient."""
    dims = opening.frame.tape.dims[opening.frame.names["h"]]
    named = ((Account.ACTIVATIONS, "hidden states"), (Account.BACKWARD, "gradient of hidden states"))
    hidden, slope = (job.book.tensor(account, name, dims, dtype, AUTOGRAD) for account, name in named)
    return hidden, slope


def _block(job: Job, kind: Kind, opening: Opening, leaves: Leaves) -> tuple[Walked, DType]:
    """A layer, walked, and the dtype of the hidden states that it leaves: norms in fp32 make what follows fp32."""
    if kind.recompute == "reentrant" and not kind.grad:  # no input asks the checkpoint's function for a gradient
        job = replace(job, trained=lambda weight: False)
    frame, pro, block = job.frame(), opening.frame, job.model.blocks[kind.block]
    tape = frame.tape
    hidden = pro.names["h"]
    source = tape.inherit(pro.tape.dims[hidden], kind.dtype, kind.grad, "hidden states")
    frame.names["h"] = source
    outside: dict[int, str] = {}
    for name in _passed(job.model, block, opening):
        value = tape.outside(pro.tape.dims[pro.names[name]], pro.tape.dtype[pro.names[name]], False)
        frame.names[name] = value
        outside[value] = name
    if kind.recompute == "reentrant":
        tape.leaves.add(source)
    lower(frame, block.ops)
    target = frame.names["h"]
    tape.end([source, *tape.cached.values(), *(value for value in frame.names.values() if value != target)])
    (before, leaving), (after, arriving) = (_edge(job, opening, tape.dtype[value]) for value in (source, target))
    known = {tape.store[source]: before, tape.store[target]: after}
    prefix = f"{block.name}.*."
    leaf = source if kind.first and opening.is_leaf else EXTERNAL
    piece = Piece(tape, source, target, prefix, known, arriving, leaving, outside, leaf, frame.calls)
    walker = Walker(job.book, piece, leaves.first)
    keep = frozenset({source}) if kind.first else frozenset()
    if kind.recompute in ("none", "selective"):
        regions = regions_of(tape, frame.marks, job.run.modules) if kind.recompute == "selective" else ()
        return walker.plain(keep, regions), tape.dtype[target]
    return walker.recomputed(kind.recompute == "reentrant", keep), tape.dtype[target]


def _layers(job: Job, opening: Opening, leaves: Leaves) -> tuple[list[Walked], DType]:
    """Every layer in order, and the dtype of the last hidden states. The first layer's input has a second name in the
    model."""
    order = sorted((index, number) for number, block in enumerate(job.model.blocks) for index in block.layers)
    walked: dict[Kind, tuple[Walked, DType]] = {}
    found: list[Walked] = []
    grad, dtype = opening.walked.trains, opening.frame.tape.dtype[opening.frame.names["h"]]
    for position, (_, number) in enumerate(order):
        kind = Kind(number, position == 0, grad, dtype, job.run.recompute_of(position))
        if kind not in walked:
            walked[kind] = _block(job, kind, opening, leaves)
        one, dtype = walked[kind]
        found.append(one)
        grad = one.trains
    return found, dtype


@dataclass(frozen=True, slots=True)
class Closing:
    """The head and the loss, walked; lines of the loss's gradient and of what the caller's names keep."""

    walked: Walked
    arriving: int
    named: tuple[int, ...]


def _closing(job: Job, opening: Opening, leaves: Leaves, ending: list[int], last: tuple[bool, DType]) -> Closing:
    """The head and the loss; `ending`: lines of what the model's own forward kept by name until it returned; `last`:
    whether the last hidden states need a gradient, and their dtype."""
    frame, pro = job.frame(), opening.frame
    tape, hidden = frame.tape, pro.names["h"]
    grad, dtype = last
    source = tape.inherit(pro.tape.dims[hidden], dtype, grad, "hidden states")
    before, leaving = _edge(job, opening, dtype)
    known = {tape.store[source]: before}
    values = []
    for line in ending:
        values.append(tape.inherit((), INT64, False, ""))
        known[tape.store[values[-1]]] = line
    frame.names["h"] = source
    loss = closing_program(frame, job.model, values, job.run.loss)
    logits = frame.names.get("logits")
    named = [loss, logits] if job.run.keeps_logits and logits is not None else [loss]
    named += [frame.names[CHOSEN]] if CHOSEN in frame.names else []
    tape.end([*frame.names.values(), *tape.cached.values()])
    lines = {
        tape.store[value]: job.line(Account.LOGITS, name, frame, value)
        for name, value in zip(NAMED, named, strict=False)
    }
    arriving = job.line(Account.LOGITS, "gradient of the loss", frame, loss)
    piece = Piece(tape, source, loss, "", known | lines, arriving, leaving, {}, calls=frame.calls)
    walked = Walker(job.book, piece, leaves.first).plain(frozenset(named))
    return Closing(walked, arriving, tuple(lines.values()))


def _held(closing: Closing) -> Walked:
    """The head's backward without the end of the loss's own gradient: `backward`, which made it, names it to its end.

    Source: torch/autograd/__init__.py, backward (v2.13).
    """
    walked, dies = closing.walked, -closing.arriving - 1
    if not walked.trains:
        return walked
    gone = walked.backward.index(dies)
    events = (*walked.backward[:gone], *walked.backward[gone + 1 :])
    arrived = tuple(one._replace(at=one.at - (one.at > gone)) for one in walked.arrived)
    ahead, product = walked.products
    return replace(walked, backward=events, arrived=arrived, products=(ahead, product - (product > gone)))


def walk(job: Job, leaves: Leaves) -> tuple[Pieces, tuple[int, ...]]:
    """The pieces of one micro-batch, and the lines of what the caller's names keep of it."""
    opening = _opening(job, leaves)
    layers, dtype = _layers(job, opening, leaves)
    saved = frozenset().union(*(walked.outside for walked in layers))
    ending = [line for name, line in opening.free.items() if name not in saved]
    if not layers[0].keeps_input and not opening.is_leaf:
        ending.append(opening.hidden)
    closing = _closing(job, opening, leaves, ending, (layers[-1].trains, dtype))
    kept = {name: line for name, line in opening.free.items() if name in saved}
    named = closing.named
    if job.run.recompute == "reentrant" and not job.run.trainer:
        # the graph's own nodes hold them as long as the caller names the loss; the Trainer lets go of it at once
        kept, named = {}, (*named, *kept.values())
    first = opening.walked
    stays = tuple(line for walked in (first, *layers, closing.walked) for line in walked.stays)
    if job.run.trainer:
        first = replace(first, backward=(*first.backward, *(-line - 1 for line in stays)))
    else:
        named = (*named, *stays)
    return Pieces(first, tuple(layers), _held(closing), closing.arriving, kept), named
