"""What a reader is shown of an estimate, added up: accounts, entries, the timeline, the three amounts, the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainledger.answer.bands import Band, Peak, ratio_of, replayed_over
from trainledger.answer.estimate import Estimate, peak_of
from trainledger.answer.expert_buffers import expert_buffers
from trainledger.answer.graph_pools import graph_pools
from trainledger.answer.waiting import waiting
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.overheads import Interval, communicators, context, libraries, peers
from trainledger.ledger.rank import Ledger
from trainledger.lines.line import Account, Line, Place
from trainledger.lines.moments import part_of
from trainledger.lines.stream import Moment
from trainledger.plan.degrees import degrees
from trainledger.plan.groups import groups_of, peers_of
from trainledger.plan.runs import Ranks, Run, run_of
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Entry:
    """A line at one moment: `copies` alive then, their bytes, and the moments at whose peak any copy is live."""

    line: Line
    copies: int
    bytes: int
    live: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccountRow:
    """One account at one moment: its bytes, its share of the moment (a fraction), its entries, largest first."""

    account: Account
    bytes: int
    share: float
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class MomentRow:
    """One moment: its bytes, those as a fraction of the largest moment's, and whether it is the peak."""

    name: str
    allocated: int
    share: float
    is_peak: bool


@dataclass(frozen=True, slots=True)
class Amount:
    """One of the amounts at the peak: its band, how it is known, what it is, and from where."""

    name: str
    band: Band
    basis: str
    why: str
    source: str


@dataclass(frozen=True, slots=True)
class Role:
    """Ranks that hold the same: their largest moment and its bytes."""

    ranks: Ranks
    allocated: int
    moment: str


def entries(ledger: Ledger, moment: Moment, every: bool = False) -> tuple[Entry, ...]:
    """The lines live at a moment, in the ledger's order; their bytes add up to its bytes, exactly.

    `every`: lines that are live at other moments only stand there too, with no copies and no bytes; and those of the
    host, which are no part of the device's sum.
    """
    first: dict[tuple[object, ...], int] = {}
    copies: dict[int, int] = {}
    live: dict[int, dict[str, None]] = {}
    one_of = [first.setdefault(_identity(line), number) for number, line in enumerate(ledger.lines)]
    for one in ledger.moments:
        here: dict[int, int] = {}
        for number, count in one.live:
            here[one_of[number]] = here.get(one_of[number], 0) + count
        for number, count in here.items():
            if count:
                live.setdefault(number, {})[one.name] = None
        if one is moment:
            copies = here
    found = tuple(
        Entry(ledger.lines[number], count, ledger.lines[number].unit * count, tuple(names))
        for number, names in sorted(live.items())
        if (count := copies.get(number, 0)) or every
    )
    return (*found, *_hosted(ledger)) if every else found


def _hosted(ledger: Ledger) -> tuple[Entry, ...]:
    names = tuple(one.name for one in ledger.moments)
    return tuple(Entry(line, copies, line.unit * copies, names) for line, copies in ledger.host)


def by_account(found: Sequence[Entry]) -> tuple[AccountRow, ...]:
    """Entries folded by account, largest account first; shares are of the entries' sum."""
    whole = sum(entry.bytes for entry in found)
    groups: dict[Account, list[Entry]] = {}
    for entry in found:
        groups.setdefault(entry.line.account, []).append(entry)
    rows = []
    for account, members in groups.items():
        size = sum(entry.bytes for entry in members)
        ordered = sorted(members, key=lambda entry: -entry.bytes)
        rows.append(AccountRow(account, size, size / whole if whole else 0.0, tuple(ordered)))
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def total(found: Sequence[Entry]) -> int:
    """Bytes of entries."""
    return sum(entry.bytes for entry in found)


def timeline(answer: Estimate) -> tuple[MomentRow, ...]:
    """Every moment in order, each against the largest."""
    most = max(one.allocated for one in answer.ledger.moments)
    return tuple(
        MomentRow(one.name, one.allocated, one.allocated / most if most else 0.0, one.name == answer.peak.moment)
        for one in answer.ledger.moments
    )


def by_part(answer: Estimate) -> tuple[MomentRow, ...]:
    """The run's parts (init, step 1, step 2, evaluation, save), each by the name of its largest moment, against the
    largest of all."""
    best: dict[str, MomentRow] = {}
    for row in timeline(answer):
        part = part_of(row.name)
        if part not in best or row.allocated > best[part].allocated:
            best[part] = row
    return tuple(best.values())


def cells(shares: Sequence[float], width: int, columns: int = 1) -> tuple[int, ...]:
    """Lengths of bars for fractions of the longest, which takes one of `columns` equal columns of `width` cells."""
    room = max(width // columns, 1)
    return tuple(min(max(round(share * room), 0), room) for share in shares)


def moment_of(answer: Estimate, name: str = "") -> Moment:
    """The moment of that name; the peak's where it is empty. Raises InputError with the nearest name."""
    wanted = name or answer.peak.moment
    names = [moment.name for moment in answer.ledger.moments]
    for moment in answer.ledger.moments:
        if moment.name.lower() == wanted.strip().lower():
            return moment
    near = nearest(wanted.strip().lower(), names)
    fix = f"Did you mean {near!r}?" if near else ""
    raise InputError([Problem("--moment", f"found {name!r}", f"the plan's moments are {', '.join(names)}", fix)])


def amounts(answer: Estimate) -> tuple[Amount, ...]:
    """Allocated, active, reserved and device at the peak, each with how it is known."""
    peak = answer.peak
    ratio = replayed_over(answer.plan).reserved if peak.replayed else ratio_of(answer.plan)
    bases = sorted({entry.line.basis.value for entry in entries(answer.ledger, moment_of(answer))})
    what = "live tensors, each rounded as the allocator rounds; high: large blocks not split"
    if peak.replayed:
        what = "live tensors in the allocator's blocks, by replay of every birth and death"
    late = waiting(answer.plan, answer.ledger) if peak.replayed else None
    more = ", ".join(sorted({*bases, late.basis.value} if late else bases))
    held = "allocated, and blocks that wait for another stream" + " (none here)" * (late is None)
    groups, loaded = groups_of(answer.plan), libraries(answer.plan.stack.kernels)
    torch = answer.plan.stack.versions.get("torch", "")
    own, links = context(answer.architecture, torch), communicators(answer.ranks, len(groups))
    near, far = peers_of(answer.plan)
    direct, sent = peers(answer.architecture, near, far), expert_buffers(answer.plan)
    graphs = graph_pools(answer.plan, answer.ledger)
    parts = (own, *([links] if answer.ranks > 1 else []), *direct, *loaded, *sent, *graphs)
    outside = "; ".join(dict.fromkeys(str(one.source) for one in parts))
    ranks = f" and the communicators of {answer.ranks:,} ranks" if answer.ranks > 1 else ""
    if len(groups) > 1:
        ranks = f" and {len(groups)} communicators ({', '.join(groups)})"
    if direct:
        ranks += f", buffers for {near + far:,} peers"
    ranks = " with its libraries" * bool(loaded) + ranks + " and DeepEP's buffers" * bool(sent)
    ranks += " and what CUDA graphs keep apart" * bool(graphs)
    return (
        Amount("allocated", peak.allocated, ", ".join(bases), what, str(CUDA.source)),
        Amount("active", peak.active, more, held, str(late.source if late else CUDA.source)),
        Amount("reserved", peak.reserved, *_reserved(peak, ratio, late)),
        Amount("device", answer.device, own.basis.value, f"reserved, the process's context{ranks}", outside),
    )


def _reserved(peak: Peak, ratio: Interval, late: Interval | None) -> tuple[str, str, str]:
    if not peak.replayed:
        return ratio.basis.value, _times(ratio), str(ratio.source)
    what, basis, sources = "what the replay took from the device", Basis.COUNTED.value, [CUDA.source]
    if peak.reserver is not None:
        what = f"{what} on rank {peak.reserver}, where it took the most"
    if late is not None:
        what, basis, sources = f"{what}, and what waits", f"{late.basis.value}, {basis}", [CUDA.source, late.source]
    if peak.reserved.low != peak.reserved.high:
        what, sources = f"{what}, with the band of measured runs around it", [*sources, ratio.source]
    return basis, what, "; ".join(str(one) for one in sources)


def roles_of(answer: Estimate, rank: str = "") -> tuple[Role, ...]:
    """The role of one rank (its number as text), or every role for `all` and for no rank. Raises InputError."""
    classes = _classes(answer)
    if rank.strip().lower() in ("", "all"):
        return tuple(_role(answer, ranks) for ranks in classes)
    last = answer.ranks - 1
    allowed = f"a rank is a number from 0 to {last}, or all" if last else "the plan has one rank: 0, or all"
    number = _number(rank, last)
    if number is None:
        raise InputError([Problem("--rank", f"found {rank!r}", allowed)])
    return tuple(_role(answer, ranks) for ranks in classes if any(number in run for run in ranks))


def _classes(answer: Estimate) -> tuple[Ranks, ...]:
    """Classes of ranks that hold the same; where these are not known, the rank that the ledger is of."""
    own = answer.ledger.rank
    if own is not None and answer.ledger.equals:
        return answer.ledger.equals
    return ((Run(0, answer.ranks - 1) if own is None else run_of(own),),)


def _role(answer: Estimate, ranks: Ranks) -> Role:
    """The role of ranks that hold the same; replayed by itself where the answer is of other ranks."""
    own, classes = answer.ledger.rank, answer.ledger.equals
    here = own is None or not classes or any(own in run for run in ranks)
    peak = answer.peak if here else peak_of(answer.plan, ranks[0].first)
    return Role(ranks, peak.allocated.expected, peak.moment)


def rank_of(answer: Estimate, rank: str = "") -> int:
    """The rank that an answer speaks of: the one asked for, else that of its ledger."""
    number = _number(rank, answer.ranks - 1)
    return (answer.ledger.rank or 0) if number is None else number


def rank_number(plan: Plan, text: str) -> int | None:
    """The rank of a plan that a text names; None where it names none."""
    return _number(text, degrees(plan).world - 1)


def _number(text: str, last: int) -> int | None:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits.lstrip("0")) > len(str(last)):
        return None
    return int(digits) if int(digits) <= last else None


def host_lines(ledger: Ledger) -> int:
    """Bytes of the lines that lie in the host's memory."""
    return sum(line.unit * copies for line, copies in ledger.host if line.place is Place.HOST)


def _identity(line: Line) -> tuple[object, ...]:
    """What makes two lines the same to a reader."""
    return (line.account, line.name, line.dims, line.dtype.name, line.unit, line.place, line.shards)


def _times(ratio: Interval) -> str:
    return f"allocated x {ratio.low:.2f} to {ratio.high:.2f}, {ratio.expected:.2f} expected"
