"""Megatron-FSDP, all states sharded: what a rank keeps, and what is gathered while a layer runs.

A transformer layer is a unit; embedding, last norm and output layer are the root, gathered once a pass and kept until
its backward has ended. Source: megatron/core/distributed/fsdp/src/megatron_fsdp/{megatron_fsdp,param_and_grad_buffer}
.py (2026-08).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DType
from trainledger.facts.megatron import FSDP
from trainledger.ledger.book import Book
from trainledger.ledger.mega_pieces import Pass
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.mega_states import Copies, States, pattern
from trainledger.ledger.updates import Runs, births, deaths
from trainledger.lines.line import Account
from trainledger.lines.param_buffers import Parameter as Placed
from trainledger.lines.param_buffers import Wrap
from trainledger.lines.stream import Segment
from trainledger.model.program import Weight


class Shards(States):
    """States of which each rank keeps its part: weights, gradients and master weights in one flat tensor a dtype."""

    ranks = 1

    def add(self, weights: Sequence[tuple[Weight, Placed]], wrap: Wrap) -> None:
        """One model chunk, spread over its data-parallel ranks."""
        self.weights += weights
        self.ranks = wrap.ranks

    def build(self) -> Runs:
        """Weights are built whole, then each rank keeps its part and makes its gradients' and master weights'."""
        own, kept = self._own(), self.kept
        parts = [(Account.WEIGHTS, kept.weights), (Account.GRADIENTS, kept.gradients)]
        if kept.master is not None:
            parts.append((Account.MASTER, kept.master))
        made = [(self._part(account, dtype), 1) for account, dtype in parts]
        return [*births(own), *births(made), *deaths(own)]

    def copies(self) -> Copies:
        """None: gradients are kept in the dtype that the optimizer reads."""
        return []

    def _owned(self) -> Iterator[tuple[str, int]]:
        """Name and elements of this rank's part of every weight."""
        for weight, placed in self.weights:
            yield pattern(placed.name), -(-weight.elements // self.ranks)

    def _part(self, account: Account, dtype: DType) -> int:
        whole = sum(weight.elements for weight, _ in self.weights)
        name = f"this rank's part of {account.value.replace('_', ' ')}"
        return self.book.tensor(account, name, (Axis(Dim.ELEMENTS, -(-whole // self.ranks)),), dtype, FSDP.source)


Both = tuple[tuple[Segment, ...], tuple[Segment, ...]]  # forward and backward


@dataclass(frozen=True, slots=True)
class Unit:
    """Lines of a unit's whole weights and whole gradients."""

    weights: int
    gradients: int

    @classmethod
    def of(cls, book: Book, weights: Iterable[Weight], name: str, dtypes: tuple[DType, DType]) -> Unit:
        """The unit that these weights make."""
        dims = (Axis(Dim.ELEMENTS, sum(weight.elements for weight in weights)),)
        own, slopes = dtypes
        return cls(
            book.tensor(Account.GATHERED, f"gathered weights of {name}", dims, own, FSDP.source),
            book.tensor(Account.REDUCTION, f"gradients of {name} before they are reduced", dims, slopes, FSDP.source),
        )


def by_unit(made: Pass, chunk: Chunk, layer: Unit, root: Unit) -> Pass:
    """A pass with what is gathered: the root all through, a layer while it runs; in backward with its gradients."""
    products = dict(made.products)

    def around(part: Segment, lines: tuple[int, ...]) -> Segment:
        events = (*(one + 1 for one in lines), *part.events, *(-one - 1 for one in reversed(lines)))
        if part.events in made.products:
            products[events] = made.products[part.events] + len(lines)
        return part._replace(events=events)

    def gathered(both: Both) -> Both:
        forward, backward = (list(segments) for segments in both)
        for at in range(int(chunk.first), len(forward) - chunk.last):
            forward[at] = around(forward[at], (layer.weights,))
        for at in range(int(chunk.last), len(backward) - chunk.first):
            backward[at] = around(backward[at], (layer.weights, layer.gradients))
        ahead = Segment(forward[0].moment, (root.weights + 1,))
        backward.insert(int(chunk.last), Segment(backward[0].moment, (root.gradients + 1,)))  # as the first comes
        backward.append(Segment(backward[0].moment, (-root.gradients - 1, -root.weights - 1)))
        return (ahead, *forward), tuple(backward)

    first, later = gathered((made.forward, made.backward)), gathered(made.after)
    return replace(made, forward=first[0], backward=first[1], products=products, after=later)
