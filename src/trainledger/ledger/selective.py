"""A recomputed layer that keeps results of some operations: PyTorch's selective checkpoint, as torchtitan asks for it.

The layer's input and the kept results live from forward to backward, whatever reads them. Backward runs the forward
again at the first saved tensor that it asks for; what was kept is handed out in place of running its operation.
Source: torch/utils/checkpoint.py, create_selective_checkpoint_contexts (v2.4 to v2.13); torchtitan, _custom_policy.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.facts.collectives import WAITED
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.torchtitan import NAME, OP, SAVED, Change, holds
from trainledger.facts.versions import at_least
from trainledger.ledger.blocks import Behind, Walked, Walker
from trainledger.ledger.budgeted import budget_of, kept_within
from trainledger.ledger.experts_torchtitan import EXCHANGE
from trainledger.ledger.frame import Frame
from trainledger.ledger.inductor import needed_again
from trainledger.ledger.planned import planned
from trainledger.ledger.rules_parallel import SCATTERED
from trainledger.ledger.tape import EXTERNAL, PRODUCTS, UNLISTED, Tape
from trainledger.ledger.visits import Visits
from trainledger.ledger.walk import (
    Events,
    Forward,
    births,
    deaths,
    early_stop,
    first_birth,
    products,
    run_forward,
    save,
    unwind,
)
from trainledger.lines.line import Account

ATTENTION = "sdpa"


def kept_by_policy(frame: Frame) -> tuple[int, ...]:
    """The primitives whose results torchtitan's policy `op` keeps: every second product, sums over ranks of a part of
    the sequence, rows sent to experts, attention, and what else its list names in that version."""
    version, tape = frame.software.release(NAME), frame.tape
    kernel = frame.kernels[0].kernel if frame.kernels else Kernel.MATH
    listed = kernel in SAVED.kernels or (kernel in SAVED.later and holds(Change.SAVES_CUDNN, version))
    sent, absolute = holds(Change.SAVES_SENT, version), holds(Change.SAVES_ABS, version)
    summed = not holds(Change.LEAVES_SUMS, version)
    also = (ATTENTION, listed), ("abs", absolute), (SCATTERED, summed), (EXCHANGE, sent)
    kinds = {kind for kind, kept in also if kept}
    found: list[int] = []
    count = 0
    for at, prim in enumerate(tape.prims):
        if prim.kind in PRODUCTS and prim.kind != UNLISTED:
            count += 1
            found += [at] if count % SAVED.every else []
        elif prim.kind in kinds:
            found.append(at)
    return tuple(found)


class Kept(NamedTuple):
    """How a layer is recomputed: primitives whose results are kept, and those that are not run again; `on`: whether the
    forward runs to its end."""

    kept: frozenset[int]
    skipped: frozenset[int] = frozenset()
    on: bool = False


def recompute_of(frame: Frame, how: str) -> Kept:
    """How torchtitan recomputes a layer: whole, by its policy `op`, or within a budget. Compiled code keeps and runs
    again only what its backward reads."""
    budget = budget_of(how)
    if budget is not None:
        within = kept_within(frame.tape, budget)
        return Kept(within, frozenset(range(len(frame.tape.prims))) - needed_again(frame.tape, within))
    kept = kept_by_policy(frame) if how == OP else ()
    if not frame.software.compiled:
        return Kept(frozenset(kept), on=holds(Change.RUNS_ON, frame.software.release(NAME)))
    needed = needed_again(frame.tape, kept)
    unread = frozenset(at for at in kept if frame.tape.prims[at].kind == SCATTERED) if _waited(frame) else frozenset()
    return Kept(needed & frozenset(kept) | unread, frozenset(range(len(frame.tape.prims))) - needed)


def _waited(frame: Frame) -> bool:
    """Whether compiled code keeps sums that its backward does not read."""
    torch = frame.setting.torch
    return bool(torch) and at_least(torch, WAITED.since) and not at_least(torch, WAITED.until)


class Selective(Walker):
    """One piece walked under a policy that keeps results."""

    def keeping(self, how: Kept, keep: frozenset[int] = frozenset()) -> Walked:
        """The whole piece is recomputed but for what is kept. Values in `keep` outlive the forward."""
        piece, tape = self.piece, self.piece.tape
        if not tape.grad[piece.target] or not any(prim.saves for prim in tape.prims):
            return self.plain(keep)
        values = frozenset(value for at in how.kept for value in tape.prims[at].outs)
        forward = planned(
            tape, run_forward(tape, frozenset({piece.target, piece.source}) | values | keep, saving=False)
        )
        there = {tape.store[value]: 1 for value in values if tape.store[value] != EXTERNAL}
        self.lines.phase(there, Account.ACTIVATIONS, Account.FORWARD)
        ahead = self.lines.read(forward.events)
        first = first_birth(forward.events, products(tape))
        behind = self._behind(how)
        used = {value for prim in tape.prims for value in prim.ins}
        outside = frozenset(name for value, name in piece.outside.items() if value in used)
        held = frozenset({tape.store[piece.source], *there})
        made, arrived = (first, behind.product), behind.arrived
        every, started = Visits(piece.calls, forward.turns, behind.turns, behind.again), behind.started
        return Walked(ahead, behind.events, (), outside, held, True, True, made, arrived, started, (), every)

    def _behind(self, how: Kept) -> Behind:
        tape = self.piece.tape
        again, left = _again(tape, how)
        back, turns = self._resumed(again)
        back.events += [-storage - 1 for storage in left]
        there = [tape.store[value] for at in how.kept for value in tape.prims[at].outs]
        return self._again(back, again, turns, there)


def _again(tape: Tape, how: Kept) -> tuple[Forward, list[int]]:
    """The forward that runs again, and storages of kept results that it does not come to."""
    kept, stop = how.kept, len(tape.prims) if how.on else early_stop(tape)
    events = Events()
    held: dict[int, int] = {}
    unnamed = frozenset(value for at in how.skipped for value in tape.prims[at].outs)  # also views of what there is
    store, dying = tape.store, deaths(tape, unnamed)
    refs = dict.fromkeys(tape.inherited, 2)  # which the checkpoint holds besides
    turns: dict[int, tuple[int, int]] = {}
    for at, prim in enumerate(tape.prims[:stop]):
        began = len(events)
        if at in how.skipped:
            pass
        elif at in kept:
            for value in prim.outs:
                if store[value] != EXTERNAL:
                    refs[store[value]] = refs.get(store[value], 0) + 1
        else:
            births(prim, store, refs, events)
        turns[at] = (began, len(events))
        save(tape, prim, held, set())
        for storage in dying[at]:
            if storage not in refs:
                continue
            refs[storage] -= 1
            if not refs[storage] and storage not in held:
                events.append(-storage - 1)
    if stop < len(tape.prims):
        save(tape, tape.prims[stop], held, set())
        turns[stop] = (len(events), len(events))
    unwind({one: count for one, count in refs.items() if one not in tape.inherited}, held, events)
    left = dict.fromkeys(store[value] for at in sorted(kept) if at >= stop for value in tape.prims[at].outs)
    return Forward(events, held, frozenset(), turns), [one for one in left if one != EXTERNAL]
