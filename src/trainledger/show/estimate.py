"""An estimate as sections of text: verdict, amounts, accounts, moments, and what was taken for granted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from trainledger.answer.estimate import Estimate, device_of
from trainledger.answer.tables import (
    Entry,
    Role,
    amounts,
    by_account,
    cells,
    entries,
    moment_of,
    roles_of,
    timeline,
)
from trainledger.answer.verdict import Verdict
from trainledger.base.dims import shape_text
from trainledger.base.units import format_count, format_size
from trainledger.facts.default_words import FORMAT
from trainledger.facts.limits import NAMED_KEYS
from trainledger.lines.stream import Moment
from trainledger.plan.degrees import accumulation, degrees
from trainledger.plan.runs import Run
from trainledger.plan.schema import Plan
from trainledger.show import doubts
from trainledger.show.acting import phases
from trainledger.show.beyond import lengths_sections, parts_section
from trainledger.show.document import EVERY, Origin, name_of
from trainledger.show.places import beside_sections
from trainledger.show.references import References
from trainledger.show.table import Screen, Section

COLUMNS = ("label", "sizes", "bar")  # a bar takes as much of the line as each of the others
BARS = len(COLUMNS)
HEAD = ("account", "bytes", "share", "")
LINES_HEAD = ("account, line", "bytes", "share", "copies", "dtype", "dims", "known, source")
OUTCOMES = {
    "fits": ("FITS", "green"), "tight": ("TIGHT", "yellow"), "does-not-fit": ("DOES NOT FIT", "red"),
    None: ("NO VERDICT", ""),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """What a reader asked to see: the unit of sizes, lines unfolded, another moment, a rank."""

    units: str = "GiB"
    lines: bool = False
    moment: str = ""
    rank: str = ""

    def size(self, size: int) -> str:
        """Bytes in the unit asked for; what is too small for its digits is not shown as nothing."""
        text = format_size(size, self.units)
        return f"<0.01 {self.units}" if size and text == format_size(0, self.units) else text


def sections(answer: Estimate, origin: Origin, view: View, screen: Screen) -> tuple[Section, ...]:
    """Everything that `estimate` prints. Raises InputError for an unknown moment or rank."""
    every = [one.name for one in answer.ledger.moments]
    names = every if view.moment.strip().lower() == EVERY else [view.moment]
    named = References()
    return (
        header(answer),
        verdict_section(answer.verdict, view, origin, answer.notes.beside),
        _amounts(answer, view, named),
        *(
            _unfolded(answer, moment_of(answer, name), view, named)
            if view.lines
            else _accounts(answer, moment_of(answer, name), view, screen)
            for name in names
        ),
        _moments(answer, view, screen),
        *phases(answer, view.size),
        parts_section(answer, view.size),
        *lengths_sections(answer, view.size),
        _ranks(roles_of(answer, view.rank) if view.rank else (), view),
        *beside_sections(answer, view.size),
        *taken(answer, origin, screen.width),
        named.section(),
    )


def header(answer: Estimate) -> Section:
    """What is trained and how, in a few lines."""
    plan, count, device = answer.plan, answer.parameters, device_of(answer.plan)
    stack, precision, batch = plan.stack, plan.precision, plan.batch
    versions = ", ".join(f"{name} {version}" for name, version in stack.versions.items())
    part = "all trained" if count.trainable == count.total else f"{count.trainable:,} trained"
    active = "" if count.active == count.total else f", {format_count(count.active)} active per token"
    master = f", master weights {precision.master}" if precision.master else ", no master weights"
    how = f"weights {precision.weights}, compute {precision.compute}{' by autocast' if precision.autocast else ''}"
    optimizer = " ".join(filter(None, (plan.optimizer.name, plan.optimizer.implementation)))
    usable = f"{device.name}, {format_size(device.usable_bytes)} usable" if device else "none given"
    steps, dp = accumulation(plan), degrees(plan).dp
    return Section(
        f"{name_of(answer)}: {count.total:,} parameters ({format_count(count.total)}), {part}{active}",
        (
            f"run      {plan.task}, {stack.framework}{f' ({versions})' if versions else ''}, strategy "
            f"{plan.parallel.strategy}, {_plural(answer.ranks, 'rank')}",
            f"dtypes   {how}, gradients {precision.gradients}{master}",
            *_adapter(plan),
            f"step     {optimizer}; attention {stack.attention}, recompute {stack.recompute.kind}, loss {stack.loss}",
            f"batch    {batch.micro_batch} x {batch.sequence:,} tokens; global batch {answer.global_batch:,} = "
            f"micro-batch {batch.micro_batch} x dp {dp} x accumulation {steps}",
            f"device   {usable}",
        ),
    )


def _adapter(plan: Plan) -> tuple[str, ...]:
    """A line for an adapter and a quantised base, where there is one."""
    given, base = plan.adapter, plan.quantization
    parts: list[str] = []
    if given is not None:
        named = (given.targets,) if isinstance(given.targets, str) else given.targets or ()
        targets = ", ".join((*named, *(given.options.get("target_parameters") or ())))
        where = f" on {targets}" if targets else ""
        parts.append(f"{given.kind}{f' r {given.r}' if given.r else ''} in {given.dtype}{where}")
    if base is not None:
        parts.append(f"base in {base.kind}{' with quantised scales' if base.double else ''}")
    return (f"adapter  {'; '.join(parts)}",) if parts else ()


def verdict_section(found: Verdict, view: View, origin: Origin | None = None, beside: tuple[str, ...] = ()) -> Section:
    """The outcome with the margin; beneath, the reasons, what is `beside` the model and not counted, and what of the
    run's own files was not taken."""
    margin = "" if found.margin is None else f": margin {view.size(found.margin)}"
    if found.outcome == "does-not-fit" and found.margin is not None and found.margin >= 0:
        margin += " of the device's memory, but not elsewhere"
    word, style = OUTCOMES[found.outcome]
    beneath = tuple(f"  {reason}" for reason in (*found.reasons, *beside))
    if origin is None:
        return Section(f"{word}{margin}", beneath, style=f"bold {style}")
    title = f"{word}{margin}{doubts.title(origin)}"
    return Section(title, (*beneath, *doubts.lines(origin)), style=f"bold {style}")


def _amounts(answer: Estimate, view: View, named: References) -> Section:
    rows = tuple(
        (
            one.name,
            *(view.size(size) for size in (one.band.low, one.band.expected, one.band.high)),
            one.basis,
            f"{one.why} {named.mark(one.source)}",
        )
        for one in amounts(answer)
    )
    peak, steps = answer.peak, answer.steps
    same = "" if peak.moment == steps.moment else f"; within whole steps at {steps.moment}"
    every = f"every rank of {answer.ranks:,}" if answer.ranks > 1 else "the only rank"
    if answer.ledger.rank is not None and answer.ranks > 1:
        every = f"rank {answer.ledger.rank:,} of {answer.ranks:,}"
    title = f"Peak: {view.size(peak.allocated.expected)} allocated at {peak.moment}{same}, on {every}"
    return Section(title, (), ("", "low", "expected", "high", "basis", "what it is"), rows, (1, 2, 3))


def _accounts(answer: Estimate, moment: Moment, view: View, screen: Screen) -> Section:
    rows = by_account(entries(answer.ledger, moment))
    bars = cells([row.share for row in rows], screen.width, BARS)
    shown = tuple(
        (row.account.value, view.size(row.bytes), f"{row.share:.1%}", "".ljust(length, screen.block))
        for row, length in zip(rows, bars, strict=True)
    )
    last = ("total", view.size(moment.allocated), "100.0%", "")
    return Section(_by_account(answer, moment), (), HEAD, (*shown, last), (1, 2), (len(shown),))


def _unfolded(answer: Estimate, moment: Moment, view: View, named: References) -> Section:
    shown: list[tuple[str, ...]] = []
    strong: list[int] = []
    for row in by_account(entries(answer.ledger, moment)):
        strong.append(len(shown))
        shown.append((row.account.value, view.size(row.bytes), f"{row.share:.1%}", "", "", "", ""))
        shown.extend(_line(entry, view, named) for entry in row.entries)
    last = ("total", view.size(moment.allocated), "100.0%", "", "", "", "")
    strong.append(len(shown))
    return Section(_by_account(answer, moment), (), LINES_HEAD, (*shown, last), (1, 2, 3), tuple(strong))


def _line(entry: Entry, view: View, named: References) -> tuple[str, ...]:
    line, basis = entry.line, f"{entry.line.basis.value} {named.mark(entry.line.source)}"
    size, copies = view.size(entry.bytes), f"{entry.copies:,}"
    return f"  {line.name}", size, "", copies, line.dtype.name, shape_text(line.dims), basis


def _by_account(answer: Estimate, moment: Moment) -> str:
    return f"{moment.name}{' (the peak)' if moment.name == answer.peak.moment else ''}, by account"


def _moments(answer: Estimate, view: View, screen: Screen) -> Section:
    found = timeline(answer)
    bars = cells([row.share for row in found], screen.width, BARS)
    rows = tuple(
        (row.name, view.size(row.allocated), "".ljust(length, screen.block) + (" <- peak" if row.is_peak else ""))
        for row, length in zip(found, bars, strict=True)
    )
    strong = tuple(number for number, row in enumerate(found) if row.is_peak)
    return Section("Moments, each at its largest", (), ("moment", "allocated", ""), rows, (1,), strong)


def _ranks(found: tuple[Role, ...], view: View) -> Section:
    if not view.rank:
        return Section("")
    rows = tuple((_span(role), view.size(role.allocated), role.moment) for role in found)
    return Section("Ranks that hold the same", (), ("ranks", "allocated", "at"), rows, (1,))


def taken(answer: Estimate, origin: Origin, width: int) -> Iterator[Section]:
    """What was filled in, ignored, warned of and left uncounted."""
    own = [one for one in origin.defaulted if one.source == FORMAT]
    rows = tuple(
        (one.path, shown_value(one.value), f"{one.why}: {one.source}") for one in origin.defaulted if one not in own
    )
    yield Section("Filled in: defaults of the framework", (), ("key", "value", "why"), rows)
    listed = ", ".join(f"{one.path} {shown_value(one.value)}" for one in own)
    text = wrap(listed, max(width, 1), break_long_words=False, break_on_hyphens=False)
    yield Section("Filled in: the plan format's own defaults", tuple(text))
    unused = tuple((one.path, one.why) for one in origin.ignored)
    yield Section("Ignored", (), ("key", "why"), unused)
    yield from outside(origin)
    yield Section("Notes", tuple(f"- {note}" for note in answer.notes.warnings))
    yield Section("Not counted", tuple(f"- {note}" for note in answer.notes.uncounted))


def outside(origin: Origin) -> Iterator[Section]:
    """What outside files were taken for, and their keys that are unknown or not counted."""
    yield Section("Read", (), ("file", "as"), tuple(origin.formats))
    if len(origin.unknown) > NAMED_KEYS.value:  # fewer stand beside the verdict
        yield Section("Unknown keys, ignored", tuple(doubts.unknown(one) for one in origin.unknown))
    kept = tuple((one.path, one.where, one.direction) for one in origin.uncounted)
    yield Section("Keys that move memory and are not counted", (), ("key", "where", "so"), kept)


def shown_value(value: object) -> str:
    """A plan's value as YAML has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _span(role: Role) -> str:
    return ", ".join(_run(run) for run in role.ranks)


def _run(run: Run) -> str:
    if run.count == 1:
        return f"{run.first}"
    step = f" step {run.stride}" if run.stride > 1 else ""
    return f"{run.first} to {run.last}{step}"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
