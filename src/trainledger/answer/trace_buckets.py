"""DistributedDataParallel's flat tensors, joined to a trace of one process by formula.

Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp. At construction weights are sent in
flat copies and all gradients get one bucket; before the second forward buckets are made anew, of limited sizes, in the
order in which the first backward finished its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from trainledger.base.units import MIB
from trainledger.evidence.trace.lines import NAMES
from trainledger.evidence.trace.record import Birth, Record, Stretch
from trainledger.facts.data_parallel import DDP
from trainledger.ledger.buckets import broadcast, bucket_sizes
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD, FORWARD
from trainledger.plan.schema import Plan

NAME = "DistributedDataParallel"


def with_buckets(plan: Plan, record: Record) -> Record:
    """The record with the buckets of the plan's strategy; the record itself where there are none."""
    if plan.parallel.strategy != "ddp":
        return record
    options = plan.parallel.options
    made = _Joined(record)
    rows = _ready(record)
    cap = int(options.get("bucket_cap_mb") or 0) * MIB
    sizes = [size for row in rows for size in bucket_sizes(row, cap or DDP.first_bucket, cap or DDP.bucket)]
    unused = bool(options.get("find_unused_parameters")) and not options.get("static_graph")
    made.broadcast()
    first = [made.bucket(size) for size in (sizes if unused else map(sum, rows))]
    made.init += [number + 1 for number in first]
    if not unused:
        again = [made.bucket(size) for size in sizes]
        made.rebuilt = [*(-number - 1 for number in first), *(number + 1 for number in again)]
    return made.record(bool(options.get("gradient_as_bucket_view")))


def _ready(record: Record) -> list[list[int]]:
    """Bytes of the gradients of the first backward, by dtype, in the order in which they are done."""
    stretch = next((one for one in record.stretches if one.moment.endswith(BACKWARD)), Stretch("", ()))
    born = [record.births[event - 1] for event in stretch.events if event > 0]
    rows: dict[str, list[int]] = {}
    for one in born:
        if one.account == Account.GRADIENTS:
            rows.setdefault(one.dtype, []).append(one.size)
    return list(rows.values())


class _Joined:
    """A record's births and events with more among them; an accumulator."""

    def __init__(self, record: Record) -> None:
        self.given = record
        self.births: list[Birth] = list(record.births)
        self.init: list[int] = []
        self.rebuilt: list[int] = []

    def bucket(self, size: int) -> int:
        """The number of a bucket of that many bytes."""
        self.births.append(Birth(size, Account.BUCKETS, NAME, "gradient bucket", "uint8", (size,)))
        return len(self.births) - 1

    def broadcast(self) -> None:
        """Flat copies of weights and buffers, two under way at a time."""
        sent = [one for one in self.given.births if one.account in (Account.WEIGHTS, Account.BUFFERS)]
        copies, events = broadcast([(NAMES[one.dtype], prod(one.shape)) for one in sent])
        before = len(self.births)
        for dtype, count in copies:
            size = dtype.bytes_of(count)
            self.births.append(Birth(size, Account.BUCKETS, NAME, "flat copy of weights", "uint8", (size,)))
        self.init += [event + before if event > 0 else event - before for event in events]

    def record(self, views: bool) -> Record:
        """All of it. `views`: gradients live in the buckets, each is gone as soon as it is made."""
        stretches: list[Stretch] = []
        forwards = 0
        for at, (moment, events) in enumerate(self.given.stretches):
            if moment.endswith(FORWARD):
                forwards += 1
            second = moment.endswith(FORWARD) and forwards == 1 + 1
            kept = tuple(self._viewed(events) if views else events)
            more = (*self.init, *kept) if at == 1 else (*self.rebuilt, *kept) if second else kept
            stretches.append(Stretch(moment, more))
        return replace(self.given, births=tuple(self.births), stretches=tuple(stretches))

    def _viewed(self, events: Sequence[int]) -> list[int]:
        found: list[int] = []
        for event in events:
            gradient = self.births[abs(event) - 1].account == Account.GRADIENTS
            if not gradient:
                found.append(event)
            elif event > 0:
                found += [event, -event]
        return found
