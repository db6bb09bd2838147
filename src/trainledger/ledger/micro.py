"""One micro-batch: forward, loss and backward of the whole model, as segments of line events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.dtypes import DType
from trainledger.facts.outputs import KEPT_CACHE
from trainledger.facts.preference_row import Outputs
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger.arrange import Pieces
from trainledger.ledger.blocks import Walked, Walker
from trainledger.ledger.closing import Ending, closing_of, edge, held_gradient
from trainledger.ledger.edges import POSITIONS, TABLES
from trainledger.ledger.frame import Frame
from trainledger.ledger.halves import Half
from trainledger.ledger.inductor import compile_frame
from trainledger.ledger.kinds import Kind, kind_of, lends
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.opening import Job, Opening, opening_of
from trainledger.ledger.outputs import PAIR, Output, ended, hands_hidden, keeps_cache, outputs_of
from trainledger.ledger.outputs import cached as gathered
from trainledger.ledger.piece import Piece
from trainledger.ledger.prefix import given_to, kept, with_prefix
from trainledger.ledger.regions import regions_of
from trainledger.ledger.returning import Returning, let_go
from trainledger.ledger.rules import lower
from trainledger.ledger.selective import Selective, recompute_of
from trainledger.ledger.storing import Storing, handed_on
from trainledger.ledger.tape import EXTERNAL
from trainledger.lines.line import Account
from trainledger.model.program import Block, Model, Pairs, Rope
from trainledger.model.prompts import virtual_tokens


def _named(job: Job, opening: Opening) -> bool:
    """Whether the model's forward names the first layer's input until it returns: torchtitan's binds the name anew with
    each layer, and so do some of Transformers' classes, which name the embedding's rows apart."""
    frame = opening.frame
    rows = frame.names.get("inputs_embeds")
    apart = rows is not None and frame.tape.store[rows] != frame.tape.store[frame.names["h"]]
    return job.run.software.framework != TORCHTITAN and not (job.model.handed.rebound and apart)


def _passed(model: Model, block: Block, opening: Opening) -> list[str]:
    """The shared names that a layer is given: all but those of the embedding that none of its operations reads, rotary
    tables that no layer reads, and of several sets those of the others."""
    made = {out for op in model.prologue for out in op.outs} - {name for op in block.ops for name in op.ins}
    if not model.handed.positions:
        made.add(POSITIONS)
    if not (model.handed.alibi or any(isinstance(op.spec, Rope | Pairs) for one in model.blocks for op in one.ops)):
        made |= TABLES
    sets = model.rotary.sets if model.rotary else ()
    if len(sets) > 1:
        own = {op.spec.tables for op in block.ops if isinstance(op.spec, Rope)}
        made |= {f"{wave}{one}" for wave in TABLES for one in sets if one not in own}
    return [name for name in opening.shared if name not in made]


class Layer(NamedTuple):
    """A layer, walked; the dtype of the hidden states that it leaves (norms in fp32 make what follows fp32); the keys
    and values that it returns; lines of those that only a cache holds once it ran, and of the gradients that it leaves
    of a prefix's."""

    walked: Walked
    dtype: DType
    cache: tuple[Output, ...] = ()
    cached: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


class Written(NamedTuple):
    """A layer on its tape, which the first and the others share: its frame, its piece, and lines of the keys and values
    that are kept of it."""

    frame: Frame
    piece: Piece
    cached: Mapping[int, int]


def _written(job: Job, kind: Kind, opening: Opening) -> Written:
    """A layer on its tape."""
    if kind.recompute == "reentrant" and not kind.grad and job.run.software.framework == LOW_LEVEL.framework:
        job = replace(job, trained=lambda weight: False)  # no input asks the checkpoint's function for a gradient
    frame, pro, block = job.frame(), opening.frame, job.model.blocks[kind.block]
    tape = frame.tape
    hidden = pro.names["h"]
    source = tape.inherit(pro.tape.dims[hidden], kind.dtype, kind.grad, "hidden states")
    frame.names["h"] = source
    outside = _handed(job, block, opening, frame)
    if kind.recompute == "reentrant":
        tape.leaves.add(source)
    given = given_to(job, frame)
    lower(frame, block.ops)
    target = frame.names["h"]
    compile_frame(frame, target)
    tape.end([source, *tape.cached.values(), *(value for value in frame.names.values() if value != target)])
    (before, leaving), (after, arriving) = (edge(job, opening, tape.dtype[value]) for value in (source, target))
    known = {tape.store[source]: before, tape.store[target]: after}
    prefix = f"{block.name}.*."
    cached = kept(job, frame, prefix) | gathered(job.book, job.run, frame, prefix)
    known |= given.known | {tape.store[value]: line for value, line in cached.items()}
    return Written(
        frame,
        Piece(tape, source, target, prefix, known, arriving, leaving, outside, EXTERNAL, frame.calls, given.passed),
        cached,
    )


def _block(job: Job, kind: Kind, opening: Opening, leaves: Leaves, written: Written) -> Layer:
    """A layer, walked."""
    frame, piece, cached = written
    tape, source, target = frame.tape, piece.source, piece.target
    if (kind.first and opening.is_leaf) or kind.asked:
        piece = replace(piece, leaf=source)
    stores = bool(tape.stored) and not cached
    walker = job.walker(piece, leaves.first, job.model.blocks[kind.block].weights)
    walker = Storing(job.book, piece, leaves.first) if stores else walker
    returns = bool(tape.returned) and job.half is Half.BOTH and not job.run.software.fetches
    walker = Returning(job.book, piece, leaves.first) if returns else walker
    named = (kind.first and _named(job, opening)) or hands_hidden(job.run)
    keep = frozenset({source}) if named else frozenset()
    if frame.software.framework == TORCHTITAN and kind.recompute not in ("none", "selective"):
        walked = Selective(job.book, piece, leaves.first).keeping(recompute_of(frame, kind.recompute), keep)
        return Layer(walked, tape.dtype[target])
    if kind.recompute in ("none", "selective"):
        regions = regions_of(tape, frame.marks, job.run.modules) if kind.recompute == "selective" else ()
        walked = walker.plain(keep | frozenset(cached), regions, lent=int(kind.lent))
        loose = tuple(line for value, line in cached.items() if tape.store[value] not in walked.held)
        return Layer(walked, tape.dtype[target], (), loose, tuple(walker.passed[value] for value in piece.passed))
    returned = frame.keys if tape.grad[target] and keeps_cache(job.run, job.model.family) else ()
    cache = tuple(_returned(job, piece, value) for value in returned)
    kind_of_walker = Storing if stores else Returning if returns else Walker
    walker = kind_of_walker(job.book, piece, leaves.first)  # which knows their lines now
    if job.run.software.fetches:
        return Layer(walker.fetched(keep), tape.dtype[target])
    walked = walker.recomputed(kind.recompute == "reentrant", keep, returned, int(kind.lent))
    if kind.asked:  # the graph holds the input, and the input its gradient
        walked = replace(walked, stays=(*walked.stays, piece.known[tape.store[source]], piece.leaving))
    return Layer(walked, tape.dtype[target], cache)


def _handed(job: Job, block: Block, opening: Opening, frame: Frame) -> dict[int, str]:
    """The layer's values of what the model's forward made and every layer is given, with their names."""
    made, found = opening.frame, dict[int, str]()
    for name in _passed(job.model, block, opening):
        value = made.names[name]
        frame.names[name] = frame.tape.outside(made.tape.dims[value], made.tape.dtype[value], False)
        found[frame.names[name]] = name
    return found


def _returned(job: Job, piece: Piece, keys: int) -> Output:
    """The keys and values that a layer returns: views of the storage in which its keys lie."""
    tape = piece.tape
    made = tape.storages[tape.store[keys]]
    line = job.book.tensor(
        Account.ACTIVATIONS, f"{piece.prefix}keys and values", made.dims, made.dtype, KEPT_CACHE.source
    )
    piece.known[tape.store[keys]] = line
    return Output(line, (*tape.dims[keys], PAIR), made.dtype)


def _layers(job: Job, opening: Opening, leaves: Leaves) -> list[Layer]:
    """Every layer in order. The first layer's input has a second name in the model."""
    order = sorted((index, number) for number, block in enumerate(job.model.blocks) for index in block.layers)
    written, walked = dict[Kind, Written](), dict[Kind, Layer]()
    found: list[Layer] = []
    grad, dtype = opening.walked.trains, opening.frame.tape.dtype[opening.frame.names["h"]]
    for position, (_, number) in enumerate(order):
        lent = any(lends(job, (after, at)) for after, (_, at) in enumerate(order[position + 1 :][:1], position + 1))
        kind = kind_of(job, (position, number), grad, dtype)._replace(lent=lent)
        if kind not in walked:
            alike = kind._replace(first=False)
            if alike not in written:
                written[alike] = _written(job, alike, opening)
            walked[kind] = _block(job, kind, opening, leaves, written[alike])
        found.append(walked[kind])
        grad, dtype = found[-1].walked.trains, found[-1].dtype
    return found


def _lasting(job: Job, opening: Opening, saved: frozenset[str]) -> tuple[int, ...]:
    """Lines of what nodes of the graph hold as long as the caller names the loss: what reentrant checkpoints were given
    by keyword. A loop that keeps the loss's value alone lets go of it at once."""
    if job.run.recompute != "reentrant" or job.run.detaches:
        return ()
    by_position = job.model.handed.by_position
    return tuple(line for name, line in opening.shared.items() if name in saved and name not in by_position)


def _hidden_outputs(job: Job, opening: Opening, layers: list[Layer]) -> list[tuple[int, DType]]:
    """Of each layer's input that the model's outputs hold: its line, -1 where autograd holds it too, and its dtype."""
    if not hands_hidden(job.run):
        return []
    dtype = opening.frame.tape.dtype[opening.frame.names["h"]]
    found: list[tuple[int, DType]] = []
    for layer in layers:
        line = opening.hidden if not found else edge(job, opening, dtype)[0]
        owned = layer.walked.keeps_input or (not found and opening.is_leaf)
        found.append((-1 if owned else line, dtype))
        dtype = layer.dtype
    return found


def _together(made: list[Layer]) -> tuple[list[Walked], dict[str, int], list[int]]:
    """The layers with what outlives each of them; by name, lines of what dies with the first; and of what dies when the
    model's forward returns."""
    layers, stored, inside = handed_on([one.walked for one in made])
    layers, returned = let_go(layers)
    return layers, stored, [*inside, *returned]


def walk(job: Job, leaves: Leaves) -> tuple[Pieces, tuple[int, ...]]:
    """The pieces of one micro-batch, and the lines of what the caller's names keep of it."""
    opening = opening_of(job, leaves)
    made = _layers(job, opening, leaves)
    layers, stored, inside = _together(made)
    saved = frozenset().union(*(walked.outside for walked in layers))
    ending = [*(line for name, line in opening.free.items() if name not in saved), *inside]
    wrapped: tuple[int, ...] = ()
    if not layers[0].keeps_input and not opening.is_leaf and _named(job, opening):
        if virtual_tokens(job.model):  # the wrapper that put a prompt before them holds them until it returns
            wrapped = (-opening.hidden - 1,)
        elif not hands_hidden(job.run):
            ending.append(opening.hidden)
    names = Ending(ending, _hidden_outputs(job, opening, made))
    closing = closing_of(job, opening, leaves, names, (layers[-1].trains, made[-1].dtype))
    lasting = _lasting(job, opening, saved)
    held = {name: line for name, line in opening.free.items() if name in saved and line not in lasting} | stored
    passed = [line for one in made for line in one.passed]
    results, early = ((), closing.results) if closing.bound else (closing.results, ())
    named, first = (*closing.named, *results, *lasting), with_prefix(job, leaves, opening.walked, passed)
    first = replace(first, backward=tuple(event for event in first.backward if -event - 1 not in lasting))
    stays = tuple(line for walked in (first, *layers, closing.walked) for line in walked.stays)
    if job.run.detaches:
        first = replace(first, backward=(*first.backward, *(-line - 1 for line in stays)))
    else:
        named = (*named, *stays)
    if job.run.forgets:
        first = replace(first, backward=(*first.backward, *(-line - 1 for line in (*named, *early))))
        named, early = (), ()
    last = held_gradient(closing)
    gone = ended(job.book, job.run, closing.logits, [output for one in made for output in one.cache], closing.cloned)
    caches = [line for one in made for line in one.cached]
    dead, kept = tuple(-line - 1 for line in caches), outputs_of(job.run)
    last = replace(last, loose=(*last.loose, *wrapped, *(dead if kept is Outputs.TAKEN else ())))
    named = (*named, *caches) if kept is Outputs.NAMED else named
    gone = (*gone, *dead) if kept is Outputs.LOCAL else gone
    bound = closing.bound if early else 0
    hidden, left = opening.hidden, closing.left
    return Pieces(first, tuple(layers), last, closing.arriving, held, gone, early, bound, hidden, left), named
