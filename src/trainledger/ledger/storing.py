"""A layer whose keys and values a dictionary names that the model's forward hands to all of its layers.

Without recompute the dictionary is gone when that forward returns. A checkpoint keeps what its layer is given until its
backward is done, and so does the first layer's the dictionary: the layer that runs again writes its new keys and values
over the old ones, and these keep the part of the graph that they were made by. A checkpoint that is not reentrant runs
no backward through that graph, so that all that its nodes saved stays, too, until the first layer's backward is done.
One that is does, and leaves the layer's input, a leaf of that graph, and its gradient.

Sources: transformers (5.24.0) models/gemma4/modeling_gemma4.py, Gemma4TextAttention.forward, Gemma4TextModel.forward;
modeling_layers.py, GradientCheckpointingLayer; torch/utils/checkpoint.py, _recomputation_hook, _checkpoint_hook (v2.4
to v2.13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from trainledger.ledger.blocks import Walked, Walker
from trainledger.ledger.engine import Backward
from trainledger.ledger.regions import Region
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import Events, Forward


@dataclass(frozen=True, slots=True)
class Kept(Walked):
    """A layer, and lines of what the dictionary alone holds: of one that is not recomputed once it ran forward, else
    once it ran backward; `named`: outside names that it holds then."""

    stored: tuple[int, ...] = ()
    named: frozenset[str] = frozenset()


class Storing(Walker):
    """Walks such a layer. `left`: values that the dictionary holds after backward, themselves or by their graph."""

    __slots__ = ("left",)
    left: frozenset[int]

    def plain(
        self,
        keep: frozenset[int] = frozenset(),
        regions: Sequence[Region] = (),
        lasting: frozenset[int] = frozenset(),
        lent: int = 0,
    ) -> Walked:
        """As any layer; keys and values outlive the forward."""
        walked = super().plain(keep | frozenset(self.piece.tape.stored), regions, lasting, lent)
        return _kept(walked, self._lines(frozenset(self.piece.tape.stored), walked.held))

    def _recomputed(self, how: tuple[bool, bool], keep: frozenset[int], returned: Sequence[int], lent: int) -> Walked:
        """As any layer; keys and values outlive the forward, and are replaced where it runs again."""
        tape, piece = self.piece.tape, self.piece
        reentrant, _ = how
        # not a leaf, which stays in any case, nor the first layer's, which stores in no published config
        alone = frozenset({piece.source} - keep - {piece.leaf})
        self.left = frozenset(tape.stored) | alone if reentrant else behind(tape)
        walked = super()._recomputed(how, keep, (*returned, *tape.stored), lent)
        if not walked.again:
            return walked
        lines = self._lines(frozenset(value for value in self.left if tape.store[value] != EXTERNAL), frozenset())
        if reentrant:
            return replace(walked, stays=(*walked.stays, *lines, *((piece.leaving,) if alone else ())))
        named = frozenset(name for value, name in piece.outside.items() if value in self.left)
        return _kept(walked, lines, named)

    def _lines(self, values: frozenset[int], owned: frozenset[int]) -> tuple[int, ...]:
        """Lines of these values' storages but for `owned` ones and a leaf, which others hold."""
        tape, leaf = self.piece.tape, self.piece.leaf
        storages = dict.fromkeys(tape.store[value] for value in sorted(values - {leaf}))
        return tuple(self.lines.of(storage) for storage in storages if storage not in owned)

    def _rerun(self, kept: frozenset[int], stop: int | None = None) -> Forward:
        """The forward once more: as it names new keys and values, the old ones die."""
        tape = self.piece.tape
        old: Events = []
        for storage in dict.fromkeys(tape.store[value] for value in tape.stored):
            tape.storages.append(tape.storages[storage])
            self.piece.known[len(tape.storages) - 1] = self.lines.of(storage)
            old.append(-len(tape.storages))
        again = super()._rerun(kept | frozenset(tape.stored), stop)
        at, _ = again.turns[tape.stored_at]
        events = [*again.events[:at], *old, *again.events[at:]]
        turns = {
            prim: (first + len(old), last + len(old)) if prim >= tape.stored_at else (first, last)
            for prim, (first, last) in again.turns.items()
        }
        return replace(again, events=events, turns=turns)

    def _back(self, forward: Forward, named: frozenset[int], extra: int = 0) -> Backward:
        return super()._back(forward, named | getattr(self, "left", frozenset()), extra)

    def _input_ends(self) -> Events:
        """The input stays where a node of the graph behind keys and values saved it."""
        tape = self.piece.tape
        kept = {tape.store[value] for value in self.left}
        return [] if tape.store[self.piece.source] in kept else super()._input_ends()


def behind(tape: Tape) -> frozenset[int]:
    """The values that are stored, and what the nodes of their graph saved."""
    reached, found = set(tape.stored), set(tape.stored)
    for prim in reversed(tape.prims[: tape.stored_at]):
        if any(value in reached and tape.grad[value] for value in prim.outs):
            reached.update(value for value in prim.ins if tape.grad[value])
            found.update(prim.saves)
    return frozenset(found)


def _kept(walked: Walked, stored: tuple[int, ...], named: frozenset[str] = frozenset()) -> Kept:
    own = {one.name: getattr(walked, one.name) for one in fields(walked)}
    return Kept(**own, stored=stored, named=named)


def handed_on(layers: Sequence[Walked]) -> tuple[list[Walked], dict[str, int], list[int]]:
    """The layers of a model whose dictionary holds something; by name, lines of what dies with the first of those that
    are recomputed, all of which keep it; and lines of what dies when the model's forward returns, as nothing is."""
    keep = [one for one in layers if isinstance(one, Kept)]
    lines = [line for one in keep for line in one.stored]
    if not any(one.again for one in layers):
        return list(layers), {}, lines
    names = {f"stored {number}": line for number, line in enumerate(lines)}
    longer = frozenset(names).union(*(one.named for one in keep))
    longest = {id(one): replace(one, outside=one.outside | longer) for one in layers if one.again and names}
    return [longest.get(id(one), one) for one in layers], names, []
