"""Phases of reinforcement learning as tables: what each role holds in each, by group of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainledger.answer.acting import rows_of
from trainledger.answer.estimate import Estimate
from trainledger.lines.line import Account
from trainledger.show.table import Section


def phases(answer: Estimate, size: Callable[[int], str]) -> Iterator[Section]:
    """A table for each group of devices; none for a plan without roles. `size` writes bytes."""
    found = rows_of(answer.plan, answer.groups)
    for group in answer.groups:
        rows = [row for row in found if row.group == group.name]
        head = ("phase", "allocated", *group.roles, "at")
        text = tuple(
            (
                row.phase,
                size(row.allocated),
                *(size(one.bytes) for one in row.shares),
                row.moment + (" <- worst" if row.worst else ""),
            )
            for row in rows
        )
        strong = tuple(at for at, row in enumerate(rows) if row.worst)
        many = "device" if group.devices == 1 else "devices"
        title = f"Phases of an iteration on {group.devices:,} {many}: {group.name}"
        room = tuple(
            f"{line.name}: {line.why}" for line in group.ledger.lines if line.account is Account.CACHE and line.why
        )
        yield Section(title, room, head, text, tuple(range(1, len(head) - 1)), strong)
