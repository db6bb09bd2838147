"""A piece of the model walked forward and backward under a recompute policy, written as lines.

Recompute: torch/utils/checkpoint.py (v2.4 to v2.13). Without reentrance the block's input is kept, the forward is run
again at the first saved tensor that backward asks for, and stops at the last one it needs; with reentrance the whole
forward is run again, and its result and the incoming gradient are held until the inner backward returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainledger.ledger.book import Book
from trainledger.ledger.dropped import run_back
from trainledger.ledger.edges import EVERYWHERE
from trainledger.ledger.engine import Backward, LeafRule
from trainledger.ledger.piece import Piece, PieceLines
from trainledger.ledger.planned import planned, replan, spans
from trainledger.ledger.regions import Region
from trainledger.ledger.split import Split
from trainledger.ledger.tape import EXTERNAL
from trainledger.ledger.visits import NOWHERE, Again, Turns, Visits
from trainledger.ledger.walk import Events, Forward, early_stop, first_birth, products, run_forward
from trainledger.lines.line import Account
from trainledger.model.program import Weight

HANDED = "waits for the piece that made its tensor, which runs backward last"
GRAPH = "held by the graph itself until it is gone"
UNREDUCED = "whole until its unit's gradients are reduced to this rank's part"
WHOLE = "one per trained weight, from its first backward until it is set to none"
LeafMaker = Callable[[Backward], LeafRule]


class Arrived(NamedTuple):
    """A parameter whose gradient is whole: its line, and after how many events of the piece's backward."""

    weight: Weight
    line: int
    at: int


class Behind(NamedTuple):
    """A backward: its events, how many there are up to its first product, the parameters as they arrived, how many
    events there are up to the end of a forward that runs again in it, its primitives' turns, and that forward's."""

    events: tuple[int, ...]
    product: int
    arrived: tuple[Arrived, ...]
    started: int
    turns: Turns
    again: Again | None = None


@dataclass(frozen=True, slots=True)
class Walked:
    """Events of one piece: forward, backward; deaths when the autocast region ends; outside names it saved.

    `held`: storages that autograd holds after forward, and `keeps_input`: whether the input is one; `trains`: whether
    the output needs a gradient (without, nothing runs backward). `products`: how many events there are up to the first
    result of a matrix product, forward and backward (0: there is none). `arrived`: parameters in the order in which
    their gradients are whole. `again`: how many events of backward there are up to the end of a forward that runs
    again in it. `stays`: what lives as long as the graph: the leaf and its gradient, and what nodes hold as attributes.
    `visits`: calls of modules.
    """

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    loose: tuple[int, ...]
    outside: frozenset[str]
    held: frozenset[int]
    keeps_input: bool
    trains: bool
    products: tuple[int, int]
    arrived: tuple[Arrived, ...] = ()
    again: int = 0
    stays: tuple[int, ...] = ()
    visits: Visits = NOWHERE


class Walker:
    """One piece walked under a policy; `leaf` makes the rule of what happens to a new gradient of a parameter."""

    __slots__ = ("book", "leaf", "lines", "passed", "piece")

    def __init__(self, book: Book, piece: Piece, leaf: LeafMaker) -> None:
        self.book, self.piece, self.leaf = book, piece, leaf
        self.lines = PieceLines(book, piece)
        self.passed: dict[int, int] = {}  # lines of gradients that another piece takes, by value

    def plain(
        self,
        keep: frozenset[int] = frozenset(),
        regions: Sequence[Region] = (),
        lasting: frozenset[int] = frozenset(),
        lent: int = 0,
    ) -> Walked:
        """No recompute but of `regions`. Values in `keep` outlive the forward, those in `lasting` backward too: a
        caller's name still holds them. `lent`: how many hold the incoming gradient besides the engine."""
        piece, tape = self.piece, self.piece.tape
        casts = frozenset(tape.cached.values())
        keep |= lasting
        saving = tape.grad[piece.target]  # where nothing needs a gradient, autograd keeps nothing
        forward = planned(tape, run_forward(tape, casts | keep | piece.staying | {piece.target}, saving, None, regions))
        self.lines.phase(forward.held, Account.ACTIVATIONS, Account.FORWARD)
        attached = self._staying()
        ahead = self.lines.read(forward.events)
        loose = self._loose(casts, forward)
        outside = frozenset(piece.outside[value] for value in forward.outside if value in piece.outside)
        held, first = frozenset(forward.held), first_birth(forward.events, products(tape))
        keeps = piece.source != EXTERNAL and tape.store[piece.source] in held
        bound = forward.turns[piece.bound][0] if piece.bound else 0
        if not tape.grad[piece.target]:
            turned = Visits(piece.calls, forward.turns, bound=bound)
            return Walked(ahead, (), loose, outside, held, keeps, False, (first, 0), visits=turned)
        back = self._back(forward, lasting | piece.staying, lent)
        again = run_back(back, regions)
        replan(back, [])
        for storage in again - held:
            self.lines.known.pop(storage, None)
        self.lines.again = set(again & held)
        behind = self._backward(back, 0, again)
        made = (first, behind.product)
        stays = (*attached, *(self.lines.of(back.grads[value]) for value in {piece.leaf} - {EXTERNAL, piece.source}))
        every = Visits(piece.calls, forward.turns, behind.turns, None, bound)
        return Walked(ahead, behind.events, loose, outside, held, keeps, True, made, behind.arrived, 0, stays, every)

    def several(self, arriving: Mapping[int, int]) -> Walked:
        """No recompute, and several results, which outlive the forward, with the lines of the gradients that arrive;
        the piece's own result is one of them."""
        piece, tape = self.piece, self.piece.tape
        casts = frozenset(tape.cached.values())
        forward = run_forward(tape, casts | frozenset(arriving), True)
        self.lines.phase(forward.held, Account.ACTIVATIONS, Account.FORWARD)
        ahead, loose = self.lines.read(forward.events), self._loose(casts, forward)
        first = first_birth(forward.events, products(tape))
        back = self._back(forward, piece.staying)
        for value, line in arriving.items():
            self.lines.known[back.seed(value, "incoming gradient")] = line
        back.run(0, len(tape.prims))
        behind = self._backward(back, 0)
        seen = Visits(piece.calls, forward.turns, behind.turns)
        made, held = (first, behind.product), frozenset(forward.held)
        return Walked(ahead, behind.events, loose, frozenset(), held, False, True, made, behind.arrived, 0, (), seen)

    def _staying(self) -> tuple[int, ...]:
        """The lines of what lives as long as the graph, but for an input, which is another piece's."""
        piece, known = self.piece, self.lines.known
        storages = dict.fromkeys(piece.tape.store[value] for value in sorted(piece.staying - {piece.source}))
        for storage in [one for one in storages if one not in known]:
            made = piece.tape.storages[storage]
            known[storage] = self.book.storage(Account.ACTIVATIONS, piece.prefix + made.name, made, GRAPH)
        return tuple(known[storage] for storage in storages)

    def recomputed(
        self, reentrant: bool, keep: frozenset[int] = frozenset(), returned: Sequence[int] = (), lent: int = 0
    ) -> Walked:
        """The whole piece is recomputed in backward; its input and the outside values it reads are kept till then.
        Values that are `returned` outlive the forward. `lent`: how many hold the incoming gradient besides the
        engine, where the checkpoint is reentrant."""
        return self._recomputed((reentrant, False), keep, returned, lent)

    def fetched(self, keep: frozenset[int] = frozenset()) -> Walked:
        """As `recomputed` with reentrance, but the input is kept in the host's memory, and copied back for backward."""
        return self._recomputed((True, True), keep, (), 0)

    def _recomputed(self, how: tuple[bool, bool], keep: frozenset[int], returned: Sequence[int], lent: int) -> Walked:
        reentrant, offloads = how
        piece, tape = self.piece, self.piece.tape
        if not tape.grad[piece.target] or not any(prim.saves for prim in tape.prims):
            return self.plain(keep)
        casts = frozenset(tape.cached.values())
        attached = frozenset() if reentrant else frozenset(tape.attached)  # without a graph there are no nodes
        kept = keep if offloads else {piece.source}
        forward = planned(tape, run_forward(tape, casts | attached | {piece.target, *kept, *returned}, saving=False))
        self.lines.phase({}, Account.ACTIVATIONS, Account.FORWARD)
        stays = self._staying() if attached else ()
        ahead = self.lines.read(forward.events)
        loose = self._loose(casts, forward)
        first = first_birth(forward.events, products(tape))
        behind = self._reentrant(lent, offloads) if reentrant else self._stopped()
        used = {value for prim in tape.prims for value in prim.ins}
        outside = frozenset(name for value, name in piece.outside.items() if value in used or name in EVERYWHERE)
        held = frozenset() if offloads else frozenset({tape.store[piece.source]})
        made, arrived = (first, behind.product), behind.arrived
        every, started = Visits(piece.calls, forward.turns, behind.turns, behind.again), behind.started
        keeps = not offloads
        return Walked(ahead, behind.events, loose, outside, held, keeps, True, made, arrived, started, stays, every)

    def _rerun(self, kept: frozenset[int], stop: int | None = None) -> Forward:
        """The forward once more, which values in `kept` outlive."""
        return run_forward(self.piece.tape, kept, saving=True, stop=stop)

    def _stopped(self) -> Behind:
        tape = self.piece.tape
        again = self._rerun(frozenset({self.piece.source}), early_stop(tape))
        back, turns = self._resumed(again)
        return self._again(back, again, turns)

    def _resumed(self, again: Forward) -> tuple[Backward, tuple[int, int]]:
        """Backward up to the last saved tensor, the forward run again, and the rest of backward; the event at which
        that rest starts, and the last primitive that saves."""
        piece, tape = self.piece, self.piece.tape
        back = self._back(again, frozenset({piece.source, piece.target}))
        back.unpacked = True
        saving = [at for at, prim in enumerate(tape.prims) if prim.saves]
        back.run(saving[-1] + 1, len(tape.prims))
        back.events += again.events
        started = len(back.events)
        back.run(saving[0], saving[-1] + 1)
        back.events += self._input_ends()
        back.run(0, saving[0])
        return back, (started, saving[-1])

    def _reentrant(self, lent: int, fetches: bool) -> Behind:
        """`fetches`: the input is copied back from the host first, whatever the graph holds of it."""
        piece, tape = self.piece, self.piece.tape
        there: list[int] = []
        if fetches:
            copy = tape.store[piece.source]
            if piece.source == piece.leaf:  # which the graph still holds
                tape.storages.append(tape.storages[copy]._replace(name=f"{tape.storages[copy].name}, from the host"))
                copy = len(tape.storages) - 1
            there = [copy + 1]
        named = frozenset({piece.source, piece.target, *tape.attached})
        again = self._rerun(named | frozenset(tape.casts.values()))
        cached = dict.fromkeys(tape.store[value] for value in tape.casts.values())  # until autocast is left
        again.events.extend(-one - 1 for one in cached if one not in again.held)
        back = self._back(again, named, extra=1 + lent)
        back.events += [*there, *again.events]
        back.run(0, len(tape.prims))
        back.release(back.first)
        inner = dict.fromkeys(tape.store[value] for value in tape.attached)
        ends = [-one for one in there] or self._input_ends()
        back.events += [-tape.store[piece.target] - 1, *ends, *(-one - 1 for one in inner)]
        return self._again(back, again, (len(there) + len(again.events), len(tape.prims)))

    def _input_ends(self) -> Events:
        """The checkpoint lets go of the input, which dies unless the graph holds it too."""
        piece = self.piece
        return [] if piece.source == piece.leaf else [-piece.tape.store[piece.source] - 1]

    def _again(self, back: Backward, again: Forward, stopped: tuple[int, int], there: Sequence[int] = ()) -> Behind:
        """`stopped`: after how many events the forward that runs again is left, and in which primitive; `there`:
        storages that lived on from the forward."""
        started, last = stopped
        kept = {storage: self.lines.known[storage] for storage in there if storage in self.lines.known}
        self.lines = PieceLines(self.book, self.piece)
        self.lines.known |= kept
        self.lines.known.pop(self.piece.tape.store[self.piece.target], None)  # not what the forward handed on
        self.lines.phase(again.held, Account.RECOMPUTED, Account.BACKWARD)
        start = started - len(again.events)
        started = replan(back, spans(back.tape, again.turns, start))(started)
        return self._backward(back, started)._replace(again=Again(again.turns, start, last))

    def _loose(self, values: frozenset[int], forward: Forward) -> tuple[int, ...]:
        storages = dict.fromkeys(self.piece.tape.store[value] for value in values)
        return tuple(-self.lines.of(storage) - 1 for storage in storages if storage not in forward.held)

    def _back(self, forward: Forward, named: frozenset[int], extra: int = 0) -> Backward:
        tape, piece = self.piece.tape, self.piece
        still = frozenset(tape.store[value] for value in named)
        back = (Split if tape.split else Backward)(tape, dict(forward.held), still)
        back.leaf = self.leaf(back)
        back.seed(piece.target, "incoming gradient", extra)
        return back

    def _backward(self, back: Backward, started: int, again: frozenset[int] = frozenset()) -> Behind:
        """The events as lines; the first `started` of them belong to a forward that runs again."""
        lines, piece, tape = self.lines, self.piece, self.piece.tape
        lines.known.update(back.given)
        for storage, weight in back.owned.items():
            if storage not in back.given:
                kept = tape.storages[storage]
                account, why = (Account.REDUCTION, UNREDUCED) if back.unreduced else (Account.GRADIENTS, WHOLE)
                lines.known[storage] = self.book.storage(account, piece.prefix + weight.name, kept, why)
        for value, storage in back.grads.items():
            if value == piece.source:
                lines.known[storage] = piece.leaving
            elif value in piece.passed:
                name, made = piece.prefix + piece.passed[value], tape.storages[storage]
                self.passed[value] = lines.known[storage] = self.book.storage(Account.BACKWARD, name, made, HANDED)
        lines.known.setdefault(back.first, piece.arriving)
        ahead = lines.read(back.events[:started])
        lines.accounts, lines.work = dict.fromkeys(again, Account.RECOMPUTED), Account.BACKWARD
        first = first_birth(back.events, back.products | products(tape))
        events = ahead + lines.read(back.events[started:])
        arrived = tuple(Arrived(one.weight, lines.of(one.storage), one.at) for one in back.arrived)
        return Behind(events, first, arrived, started, back.turns)
