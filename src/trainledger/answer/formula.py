"""How the bytes of one line come about, step by step, and which lines a reader's word means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainledger.answer.estimate import Estimate
from trainledger.answer.tables import Entry, by_account, entries, moment_of, total
from trainledger.base.dims import elements
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.allocator import CUDA
from trainledger.ledger.rank import payload
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Moment


@dataclass(frozen=True, slots=True)
class Formula:
    """An entry's arithmetic: elements -> payload -> block (`added` bytes, and why) -> times copies.

    `elements` x `bits` / 8 = `payload`, rounded up to bytes; `payload` + `added` = `block`; `block` x copies = bytes.
    """

    entry: Entry
    elements: int
    bits: int
    payload: int
    block: int
    added: int
    block_why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The lines that a word means, at one of the plan's `moments`. `note`: why another than the peak is shown."""

    moment: str
    moments: int
    bytes: int
    formulas: tuple[Formula, ...]
    note: str = ""


def explain(answer: Estimate, word: str, moment: str = "") -> Explanation:
    """The lines of an account, or those in whose name the word occurs: at a moment, else at the peak.

    Where none of them is live at the peak and no moment was asked for, the moment at which they are largest is shown.
    Raises InputError with the nearest account or name when the word means none, and for an unknown moment.
    """
    wanted = matching(answer.ledger.lines, word)
    shown, note = moment_of(answer, moment), ""
    found = _of(answer, shown, wanted)
    if not found and not moment:
        shown = max(answer.ledger.moments, key=lambda one: total(_of(answer, one, wanted)))
        found = _of(answer, shown, wanted)
        note = f"none of it is live at the peak ({answer.peak.moment}); this is where it is largest"
    if not found:
        names = dict.fromkeys(name for entry in _ever(answer, wanted) for name in entry.live)
        allowed = f"it is live at {', '.join(names) or 'no moment'}"
        raise InputError([Problem(word, f"nothing of it is live at {shown.name!r}", allowed)])
    ordered = [entry for row in by_account(found) for entry in row.entries]
    formulas = tuple(formula(entry) for entry in ordered)
    return Explanation(shown.name, len(answer.ledger.moments), total(found), formulas, note)


def formula(entry: Entry) -> Formula:
    """The arithmetic of one entry under the allocator's rounding."""
    line = entry.line
    size = payload(line)
    return Formula(
        entry, elements(line.dims), line.dtype.bits, size, line.unit, line.unit - size, _why(line.unit, size)
    )


def matching(lines: Iterable[Line], word: str) -> frozenset[int]:
    """Numbers of the lines that a word means: an account's name, else whatever contains it. Raises InputError."""
    known = list(lines)
    wanted = word.strip().lower()
    account = wanted.replace(" ", "_").replace("-", "_")
    if account in {one.value for one in Account}:
        found = [number for number, line in enumerate(known) if line.account.value == account]
    elif wanted:
        found = [
            number for number, line in enumerate(known) if wanted in line.name.lower() or account in line.account.value
        ]
    else:
        found = []
    if found:
        return frozenset(found)
    accounts = list(dict.fromkeys(line.account.value for line in known))
    near = nearest(account, accounts) or nearest(wanted, dict.fromkeys(line.name.lower() for line in known))
    fix = f"Did you mean {near!r}?" if near else ""
    allowed = f"an account ({', '.join(accounts)}) or a part of a line's name is needed"
    raise InputError([Problem("ACCOUNT", f"found {word!r}", allowed, fix)])


def _of(answer: Estimate, moment: Moment, wanted: frozenset[int]) -> tuple[Entry, ...]:
    return _chosen(answer, entries(answer.ledger, moment), wanted)


def _ever(answer: Estimate, wanted: frozenset[int]) -> tuple[Entry, ...]:
    return _chosen(answer, entries(answer.ledger, moment_of(answer), every=True), wanted)


def _chosen(answer: Estimate, found: Iterable[Entry], wanted: frozenset[int]) -> tuple[Entry, ...]:
    names = {(answer.ledger.lines[number].account, answer.ledger.lines[number].name) for number in wanted}
    return tuple(entry for entry in found if (entry.line.account, entry.line.name) in names)


def _why(unit: int, size: int) -> str:
    granule = f"{CUDA.granule} B"
    if unit == size:
        return f"a multiple of {granule} already" if unit % CUDA.granule == 0 else "taken as it is"
    if unit == CUDA.rounded(size):
        return f"rounded up to a multiple of {granule}"
    return "the block that its own allocation takes"
