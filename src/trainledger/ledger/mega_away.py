"""What the host holds of activations under Megatron-Core's fine-grained offloading: page-locked copies of the tensors
that go, of every micro-batch in flight. Its pool of copies gives none back.

Source: megatron/core/pipeline_parallel/fine_grained_activation_offload.py, OffloadTensorPool (0.15 to 0.19).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from trainledger.base.dims import elements
from trainledger.facts.megatron_offload import OFFLOAD
from trainledger.ledger.host import Lines, host_line
from trainledger.ledger.tape import Storage, Tape
from trainledger.lines.actions import Action, flights
from trainledger.lines.line import Account, Line


def away(tape: Tape) -> tuple[Storage, ...]:
    """The storages of a tape that lie on the host until its backward."""
    return tuple(
        tape.storages[storage]
        for one in tape.dropped
        for storage in one.storages
        if one.first == one.last  # others are made once more
    )


def away_lines(chunks: Sequence[Counter[Storage]], order: Sequence[Action]) -> Lines:
    """Lines, with copies, of what lies there where it is most; `chunks`: what one micro-batch through each leaves."""
    each = [sum(_line(one).unit * count for one, count in chunk.items()) for chunk in chunks]
    if not any(each):
        return ()
    flying = max(
        (flight.flying for _, flight in flights(order)),
        key=lambda counts: sum(size * count for size, count in zip(each, counts, strict=False)),
    )
    total: Counter[Line] = Counter()
    for chunk, count in zip(chunks, flying, strict=False):
        for one, copies in chunk.items():
            total[_line(one)] += copies * count
    return tuple((line, count) for line, count in total.items() if count)


def _line(one: Storage) -> Line:
    made = host_line(Account.ACTIVATIONS, one.name, elements(one.dims), one.dtype, True)
    return replace(made, dims=one.dims, source=OFFLOAD.source)
