"""What comes before a model's layers: the run as a job, the embedding, masks and tables that all layers are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import AUTOGRAD
from trainledger.facts.dtypes import INT64, DType
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.peft import scales_inside
from trainledger.facts.torch_releases import SOFTMAX, SOFTMAX_INPUTS
from trainledger.ledger import alibi
from trainledger.ledger.blocks import LeafMaker, Walked, Walker
from trainledger.ledger.book import Book
from trainledger.ledger.edges import causal_mask, padding_mask, position_ids, rotary_tables, window_mask
from trainledger.ledger.frame import Frame
from trainledger.ledger.halves import Half, HalfWalker
from trainledger.ledger.hooked import asked, noised
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.masks import WHOLE, adds, always, mask_of, writes
from trainledger.ledger.piece import Piece
from trainledger.ledger.rules import lower
from trainledger.ledger.rules_liger import for_family
from trainledger.ledger.run import Run
from trainledger.ledger.software import NOISED
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.lines.kernel_choice import given_masks
from trainledger.lines.line import Account
from trainledger.model.program import Attention, Model, Prefix, Weight
from trainledger.model.prompts import prefix_of

Trained = Callable[[Weight], bool]
IDS = ("input_ids", "token_type_ids")


@dataclass(frozen=True, slots=True)
class Job:
    """What is walked: the book its lines go to, the model, the run, and which weights are trained; which pass of the
    layers' backward."""

    book: Book
    model: Model
    run: Run
    trained: Trained
    half: Half = Half.BOTH

    def walker(self, piece: Piece, leaf: LeafMaker, weights: Sequence[Weight]) -> Walker:
        """What walks a piece with these weights."""
        if self.half is Half.BOTH:
            return Walker(self.book, piece, leaf)
        return HalfWalker(self.book, piece, leaf).of(self.half, weights)

    @property
    def short(self) -> Job:
        """The same with one token a sequence: the least that micro-batches have whose length the plan does not say."""
        return replace(self, run=replace(self.run, setting=replace(self.run.setting, sequence=1)))

    def frame(self) -> Frame:
        """A new tape to write on."""
        run, software = self.run, for_family(self.run.software, self.model.family)
        tape = Tape(run.setting.autocast, software.device)
        if SOFTMAX_INPUTS.holds(run.setting.torch):
            tape.keeping = SOFTMAX
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


def opening_of(job: Job, leaves: Leaves) -> Opening:
    """What comes before the layers, walked."""
    frame, model, setting = job.frame(), job.model, job.run.setting
    tape, names = frame.tape, frame.names
    tokens = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    for name in IDS:
        names[name] = tape.outside(tokens, INT64, False)
    if model.handed.numbered:
        position_ids(frame, model)
    scaled = scales_inside(model.family, setting.transformers)
    ops = tuple(op for op in model.prologue if not isinstance(op.spec, Prefix))  # a piece of its own
    ops = asked(ops, scaled) if job.run.asks_inputs(model) else ops
    lower(frame, noised(ops, scaled) if NOISED in frame.software.kernels and setting.training else ops)
    hidden = names["h"]
    biases = model.handed.alibi
    if biases is not None:
        alibi.bind(frame, biases, tape.dtype[hidden])
    _masks(frame, model, tape.dtype[names.get("inputs_embeds", hidden)])
    if biases is not None:
        alibi.into_mask(frame, biases, tape.dtype[hidden])
    rotary_tables(frame, model, tape.dtype[hidden])
    owned = {name: value for name, value in names.items() if name not in (*IDS, "h") and value not in tape.leaves}
    apart = (EXTERNAL, tape.store[hidden])  # rows of which nothing is dropped are the hidden states themselves
    shared = {name: value for name, value in owned.items() if tape.store[value] not in apart}
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
    windows that some token's past exceeds, or all where keys stand before the sequence, so that there are more keys
    than queries, where rows are padded, and where a release takes every row for a packed one; none for other kernels.
    A model that sees what comes later has a mask of padding alone, before Transformers 5 one row of it for eager,
    padding or none.
    Source: transformers/masking_utils.py, _ignore_causal_mask_sdpa (5.24.0)."""
    setting = frame.setting
    handed = given_masks(setting.attention)
    if not (handed or setting.attention == Kernel.EAGER):
        return
    specs = [op.spec for block in model.blocks for op in block.ops if isinstance(op.spec, Attention)]
    prefix = prefix_of(model)
    before = prefix.count if prefix else 0
    own = setting.padded or adds(frame)
    every = own or (model.causal and (not handed or before or setting.packed or always(frame, model)))
    needed = {mask_of(frame, spec) for spec in specs if every or 0 < spec.window <= setting.sequence}
    boolean = handed and not writes(frame)
    for name in sorted(needed | set(() if handed and not setting.padded else model.handed.masks)):
        if model.causal:
            causal_mask(frame, dtype, name, boolean, before)
        elif name != WHOLE:
            window_mask(frame, dtype, name, boolean)
        else:
            padding_mask(frame, dtype, name, boolean, shared=not handed and (writes(frame) or adds(frame)))
