"""One micro-batch of one model chunk under Megatron-Core, walked: its forward and its backward as events of lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import INT64
from trainledger.facts.megatron import CHECKPOINT
from trainledger.ledger import mega_loss
from trainledger.ledger.blocks import Walked, Walker
from trainledger.ledger.frame import Frame
from trainledger.ledger.host import Lines
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_away import away
from trainledger.ledger.mega_drops import drops, put_off
from trainledger.ledger.mega_further import LAYER, predicted
from trainledger.ledger.mega_hosted import hosted
from trainledger.ledger.mega_left import DISPATCHER, released, routes, shifted
from trainledger.ledger.mega_passes import HIDDEN, Edges, Pass, borders_of, edges_of, mega_of
from trainledger.ledger.mega_run import CORE, Chunk
from trainledger.ledger.opening import Job
from trainledger.ledger.piece import Piece
from trainledger.ledger.regions import Region, regions_of
from trainledger.ledger.rules import lower
from trainledger.ledger.tape import EXTERNAL, Storage
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD, FORWARD, LOSS
from trainledger.lines.stream import Segment
from trainledger.model.operations_megatron import Looked
from trainledger.plan.running import Recompute

Ends = tuple[bool, int]  # whether the input was received; how many hold the arriving gradient besides the engine
Kind = tuple[int, bool, bool]  # a layer's block; whether it stays in 16 bits among 8-bit ones, and on the device
Group = tuple[tuple[Kind, ...], bool]  # layers that are walked as one, and whether they run again
# modules that may run again on their own, and the operations that they are in dense layers and in those with experts
MODULES = {
    CORE: ("self_attention.core_attention",) * len((False, True)),
    "mlp": ("mlp", ""),
    "moe": ("", "mlp"),
    "shared_experts": ("", "mlp.shared_experts"),
}


class Walks:
    """The pieces of a chunk, each walked once."""

    def __init__(self, job: Job, leaves: Leaves, recompute: Recompute) -> None:
        self.job, self.leaves, self.recompute = job, leaves, recompute
        self.trains = job.run.setting.training  # else nothing is kept, and a pass holds its first input to its end
        self.edges = edges_of(job)
        self._layers: dict[tuple[tuple[Kind, ...], bool, Ends, bool], Walked] = {}
        self._away: dict[tuple[tuple[Kind, ...], bool, Ends, bool], tuple[Storage, ...]] = {}
        self.away: list[Counter[Storage]] = []  # of each chunk that was run, what a micro-batch leaves on the host
        self.hosted: Lines = ()  # of whole layers

    def run(self, chunk: Chunk) -> Pass:
        """A micro-batch through a chunk."""
        groups = self.groups(chunk)
        top = len(groups) - 1
        left = [self._leaves_graph(*group) and (at > 0 or chunk.first) for at, group in enumerate(groups)]
        opening = self._opening(int(left[0] if left else not chunk.closes)) if chunk.first else None
        layers, away_now = [], Counter[Storage]()
        for at, (blocks, made) in enumerate(groups):
            lent = int(left[at + 1]) if at < top else int(not chunk.closes)
            ends = (not at and not (chunk.first and self.trains), lent)
            layers.append(self.layer(blocks, made, ends, left[at]))
            away_now.update(self._away.get((blocks, made, ends, left[at]), ()))
        self.away.append(away_now)
        if mega_of(self.job).away:
            layers, self.hosted = hosted(layers, mega_of(self.job).away, self.job.book.lines, self.edges.hidden)
        received = not chunk.first and not layers
        if chunk.last:
            closing: Walked | None = self._closing(chunk, received)
        else:
            closing = self._between(chunk, received) if chunk.closes else None
        every = [one for one in (opening, *layers, closing) if one is not None]
        if not every:
            return self._handed_on(chunk)
        if chunk.first and groups and groups[0][1] and mega_of(self.job).spread and self._viewed():
            gone = -self.edges.hidden - 1
            assert every[1].forward[-1] == gone  # a recomputed layer lets go of its input last
            every[1] = replace(every[1], forward=every[1].forward[:-1])
            every[-1] = replace(every[-1], forward=(*every[-1].forward, gone))
        kept = (self.edges.hidden, self.edges.slope)
        marked = dict(zip(range(int(chunk.first), len(every)), left, strict=False))
        after = [released(one, kept) if marked.get(at) else one for at, one in enumerate(every)]
        products = {
            events: at
            for walked in every
            for events, at in zip((walked.forward, walked.backward), walked.products, strict=True)
            if at
        }
        return Pass(*_segments(every), products, _segments(after))

    def _viewed(self) -> bool:
        """Whether the embedding's result is a view: its own tensor then outlives the part that is kept of it, until the
        model's forward returns (megatron/core/utils.py, make_viewless_tensor)."""
        setting, (looked,) = self.job.run.setting, (op.spec for op in self.job.model.prologue)
        return isinstance(looked, Looked) and setting.batch == 1 and not (looked.dropout and setting.training)

    def _handed_on(self, chunk: Chunk) -> Pass:
        """A chunk without layers hands on a copy of what it received, and its gradient likewise.

        Source: megatron/core/transformer/transformer_block.py, TransformerBlock.forward (0.14 to 0.19).
        """
        edges = borders_of(self.job, chunk).goes
        ways = Segment(FORWARD, (edges.hidden + 1,)), Segment(BACKWARD, (edges.slope + 1,))
        forward, backward = ((one,) for one in ways)
        return Pass(forward, backward, {}, (forward, backward))

    def _leaves_graph(self, kinds: tuple[Kind, ...], again: bool) -> bool:
        """Whether these layers, run again, leave a graph behind."""
        return again and any(routes(self.job.model.blocks[kind[0]]) for kind in kinds)

    def whole(self) -> Chunk:
        """All layers as one chunk."""
        layers = sorted(layer for block in self.job.model.blocks for layer in block.layers)
        return Chunk(tuple(layers), True, True, sum(block.count for block in self.job.model.further), True)

    def groups(self, chunk: Chunk) -> list[Group]:
        """Layers that are walked as one, by their blocks, and whether they are recomputed."""
        blocks = {layer: at for at, block in enumerate(self.job.model.blocks) for layer in block.layers}
        mega = mega_of(self.job)
        wide = mega.engine.quant.wide if mega.engine is not None and mega.engine.quant is not None else ()
        here = chunk.layers[-1:] if chunk.last and not chunk.further and mega.stays else ()
        kinds = [(blocks[layer], layer in wide, layer in here) for layer in chunk.layers]
        given = self.recompute
        if given.kind != "full":
            return [((kind,), False) for kind in kinds]
        count = given.num_layers or 1
        if given.method == "block":
            return [((kind,), at < count) for at, kind in enumerate(kinds)]
        return [(tuple(kinds[at : at + count]), True) for at in range(0, len(kinds), count)]

    def layer(self, kinds: tuple[Kind, ...], again: bool, ends: Ends, left: bool = False) -> Walked:
        """Some layers as one piece."""
        key = (kinds, again, ends, left)
        if key not in self._layers:
            self._layers[key] = self._walk(kinds, again, ends, left)
        return self._layers[key]

    def _walk(self, kinds: tuple[Kind, ...], again: bool, ends: Ends, left: bool) -> Walked:
        blocks = tuple(self.job.model.blocks[kind[0]] for kind in kinds)
        frame, edges = self.job.frame(), self.edges
        frame = _on_the_device(frame) if any(kind[-1] for kind in kinds) else frame
        tape = frame.tape
        source = tape.inherit(edges.dims, edges.dtype, True, HIDDEN)
        frame.names["h"] = source
        if again or ends[0]:
            tape.leaves.add(source)
        for block, (_, wide, _) in zip(blocks, kinds, strict=True):
            given = frame.names["h"]
            lower(_in_16_bits(frame) if wide else frame, block.ops)
            tape.end([given])  # named until the layer has returned
            for weight in block.weights:  # the next layer has its own
                frame.params.pop(weight, None)
        target = frame.names["h"]
        tape.end([source, *(value for value in frame.names.values() if value != target)])
        known = {tape.store[source]: edges.hidden, tape.store[target]: edges.hidden}
        prefix = f"{blocks[0].name}.*."
        leaf = source if ends[0] or left else EXTERNAL
        piece = self._piece(Piece(tape, source, target, prefix, known, edges.slope, edges.slope, {}, leaf, frame.calls))
        if mega_of(self.job).delayed:
            tape.split += put_off(frame)
        walker = Walker(self.job.book, piece, self.leaves.first)
        if again:
            walked = walker.recomputed(True, lent=ends[1])
            return self._spread(walked) if mega_of(self.job).spread else walked
        regions = self._regions(frame, leaf)
        self._away[kinds, again, ends, left] = away(tape)
        return walker.plain(regions=regions, lent=ends[1])

    def _piece(self, piece: Piece) -> Piece:
        """The piece; of an evaluation nothing needs a gradient."""
        if not self.trains:
            piece.tape.grad[piece.target] = False
            piece.tape.attached.clear()
        return piece

    def _spread(self, walked: Walked) -> Walked:
        """The input is kept as this rank's part of it, and gathered before the layer runs again."""
        job, edges, ranks = self.job, self.edges, mega_of(self.job).parts.tp
        part = (Axis(Dim.ELEMENTS, elements(edges.dims) // ranks),)
        line = job.book.tensor(Account.ACTIVATIONS, "part of a layer's input", part, edges.dtype, CHECKPOINT)
        ahead = (*walked.forward, line + 1, -edges.hidden - 1)
        behind = (edges.hidden + 1, -line - 1)
        return shifted(replace(walked, forward=ahead, backward=(*behind, *walked.backward)), len(behind))

    def _regions(self, frame: Frame, leaf: int) -> tuple[Region, ...]:
        """Modules that run again; what is emptied meanwhile is noted on the tape."""
        regions, modules = self._again(frame), self.recompute.modules or ()
        chosen = modules if self.recompute.kind == "selective" else ()
        frame.tape.dropped += drops(frame, chosen, regions, leaf)
        return regions

    def _again(self, frame: Frame) -> tuple[Region, ...]:
        given = self.recompute
        if given.kind == "full":
            return regions_of(frame.tape, frame.marks, [LAYER], True)
        if given.kind != "selective":
            return ()
        routed = DISPATCHER in {name for name, _, _ in frame.marks}
        names = [MODULES[name][routed] for name in given.modules or (CORE,) if name in MODULES]
        return regions_of(frame.tape, frame.marks, [name for name in names if name], True)

    def _opening(self, lent: int) -> Walked:
        """The embedding."""
        job, edges = self.job, self.edges
        frame = job.frame()
        tape = frame.tape
        frame.names["input_ids"] = tape.outside(frame.dims(()), INT64, False)
        lower(frame, job.model.prologue)
        target = frame.names["h"]
        tape.end([value for value in frame.names.values() if value != target])
        known = {tape.store[target]: edges.hidden}
        piece = self._piece(Piece(tape, EXTERNAL, target, "", known, edges.slope, edges.slope, {}, calls=frame.calls))
        return Walker(job.book, piece, self.leaves.last).plain(lent=lent)

    def _between(self, chunk: Chunk, received: bool) -> Walked:
        """The last norm, and layers for further tokens, where another chunk has the output layer."""
        job, edges, goes = self.job, self.edges, borders_of(self.job, chunk).goes
        frame, source = self._handed(edges, received)
        tape = frame.tape
        if chunk.normed:
            lower(frame, job.model.head.ops[:1])
        target = predicted(frame, job.model, chunk.further) if chunk.further else frame.names["h"]
        tape.end([source, *(value for value in frame.names.values() if value not in (source, target))])
        known = {tape.store[source]: edges.hidden, tape.store[target]: goes.hidden}
        leaf = source if received else EXTERNAL
        piece = self._piece(Piece(tape, source, target, "", known, goes.slope, edges.slope, {}, leaf, frame.calls))
        return Walker(job.book, piece, self.leaves.first).plain(regions=self._regions(frame, leaf), lent=1)

    def _handed(self, edges: Edges, received: bool) -> tuple[Frame, int]:
        """A frame whose `h` comes from the piece before, or from another stage."""
        frame = self.job.frame()
        source = frame.tape.inherit(edges.dims, edges.dtype, True, HIDDEN)
        frame.names["h"] = source
        if received:
            frame.tape.leaves.add(source)
        return frame, source

    def _closing(self, chunk: Chunk, received: bool) -> Walked:
        """The output layer and the loss."""
        job, edges = self.job, borders_of(self.job, chunk).came
        frame, source = self._handed(edges, received)
        frame = _on_the_device(frame) if mega_of(job).stays else frame
        tape = frame.tape
        loss = mega_loss.closing(frame, job.model, job.run.loss, chunk)
        tape.end([source, *(value for value in frame.names.values() if value != loss)])
        arriving = job.line(Account.LOGITS, "gradient of the loss", frame, loss)
        kept = job.line(Account.LOGITS, LOSS, frame, loss)
        known = {tape.store[source]: edges.hidden, tape.store[loss]: kept}
        leaf = source if received else EXTERNAL
        piece = self._piece(Piece(tape, source, loss, "", known, arriving, edges.slope, {}, leaf, frame.calls))
        walked = Walker(job.book, piece, self.leaves.first).plain(regions=self._regions(frame, leaf))
        products = (walked.products[0], walked.products[1] and walked.products[1] + 1)
        return replace(walked, backward=(arriving + 1, *walked.backward), products=products)


def _segments(every: list[Walked]) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    forward = [Segment(FORWARD, events, len(list(group))) for events, group in groupby(x.forward for x in every)]
    behind = groupby(x.backward for x in reversed(every))
    backward = [Segment(BACKWARD, events, len(list(group))) for events, group in behind]
    return tuple(forward), tuple(backward)


def _on_the_device(frame: Frame) -> Frame:
    """The frame of a piece whose saved tensors do not go to the host: it goes backward next."""
    mega = frame.software.mega
    assert mega is not None
    return replace(frame, software=replace(frame.software, mega=replace(mega, hosted=None)))


def _in_16_bits(frame: Frame) -> Frame:
    """The frame of layers that stay out of 8-bit products."""
    mega = frame.software.mega
    assert mega is not None
    assert mega.engine is not None
    plain = replace(mega, engine=replace(mega.engine, quant=None))
    return replace(frame, software=replace(frame.software, mega=plain))
