"""Another tool's numbers as text, with what it leaves out."""

from __future__ import annotations

from trainledger.answer.estimate import Estimate
from trainledger.answer.tables import by_account, entries
from trainledger.answer.theirs import Theirs
from trainledger.base.units import format_size
from trainledger.lines.line import Account

STATES = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)
NAMES = {"cpu": "per CPU", "gpu": "per GPU", "largest_layer": "largest layer", "training_adam": "training with Adam"}


def title(answer: Theirs) -> str:
    """`deepspeed-zero3 as its release 0.19.8 counts; not our estimate`."""
    release = f"release {answer.release}" if answer.release else "newest known release"
    return f"{answer.tool}, as its {release} counts: theirs, not this program's estimate"


def rows(answer: Theirs, unit: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows, sizes in this unit."""
    columns = [name for name, _ in answer.rows[0].sizes]
    header = ("options", *(NAMES.get(name, name) for name in columns))
    return header, tuple(
        (row.options, *("not shown" if size is None else format_size(size, unit) for _, size in row.sizes))
        for row in answer.rows
    )


def notes(answer: Theirs) -> tuple[str, ...]:
    """What it leaves out, and its source."""
    return (*(f"left out: {text}" for text in answer.left_out), f"source: {answer.source}")


def beside(found: Estimate, unit: str) -> tuple[str, ...]:
    """This program's own peak of the same plan, and what is no model state, each account where it is largest."""
    largest: dict[Account, int] = {}
    for moment in found.ledger.moments:
        for row in by_account(entries(found.ledger, moment)):
            largest[row.account] = max(largest.get(row.account, 0), row.bytes)
    peak = format_size(found.peak.allocated.expected, unit)
    lines = [f"this program's own estimate: {peak} allocated at {found.peak.moment}; no model states, where largest:"]
    for account, size in sorted(largest.items(), key=lambda one: -one[1]):
        if account not in STATES:
            lines.append(f"  {account.value:24} {format_size(size, unit):>12}")
    return tuple(lines)
