"""What lies beside the device's allocator as text: places, an update's least time, the host, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trainledger.answer.budgets import Budgets, asked
from trainledger.answer.checkpoint import Checkpoint
from trainledger.answer.disk import Elsewhere, beside, elsewhere
from trainledger.answer.estimate import Estimate
from trainledger.answer.resume_read import Resume
from trainledger.show.table import Section

Size = Callable[[int], str]
OUTCOMES = {"fits": "fits", "tight": "tight", "does-not-fit": "DOES NOT FIT", None: "not judged"}


def beside_sections(answer: Estimate, size: Size) -> Iterator[Section]:
    """A few lines always; tables of every place where the plan says something of one."""
    found = beside(answer)
    kept = elsewhere(answer, found.checkpoint)
    yield Section("Besides the device's allocator", tuple(_lines(kept, found, size)))
    if asked(answer.plan):
        yield places_section(found, size)
        yield update_section(found, size)
        yield host_section(found, size)
        yield from checkpoint_sections(found.checkpoint, size)


def _lines(kept: Elsewhere, found: Budgets, size: Size) -> Iterator[str]:
    written = found.checkpoint
    yield (
        f"checkpoint   {size(written.total)} as {written.format.name} writes it, {size(kept.weights_only)} weights "
        "only; metadata not counted"
    )
    yield f"host memory  {size(kept.host)} of this rank's tensors"
    if kept.paged:
        yield (
            f"paged        {size(kept.paged)} of optimizer states in managed memory: outside allocated and "
            "reserved, on the device while there is room, else among the host's"
        )
    for one in found.traffic:
        if one.seconds is not None:
            yield f"update       {seconds(one.seconds)} at least through {one.name}"


def places_section(found: Budgets, size: Size) -> Section:
    """Each place against what it has to hold."""
    rows = tuple(
        (
            one.name, one.moment, f"{one.shared_by:,}", size(one.need.expected), size(one.need.high),
            "not given" if one.capacity is None else size(one.capacity), OUTCOMES[one.verdict.outcome],
        )
        for one in found.budgets
    )  # fmt: skip
    header = ("place", "fullest at", "ranks", "needed", "at most", "there is", "")
    return Section("Other places, of all ranks that share them", (), header, rows, (2, 3, 4, 5))


def update_section(found: Budgets, size: Size) -> Section:
    """The least time of an update, place by place."""
    rows = tuple(
        (
            one.name, size(one.read), size(one.written), f"{one.shared_by:,}",
            "not known" if one.bandwidth is None else f"{size(one.bandwidth)}/s",
            "not known" if one.seconds is None else seconds(one.seconds),
        )
        for one in found.traffic
    )  # fmt: skip
    header = ("where", "read", "written", "ranks", "bandwidth", "at least")
    title = "One update of the weights: bytes of a rank over the bandwidth that its ranks share"
    return Section(title, (), header, rows, (1, 2, 3, 4, 5))


def host_section(found: Budgets, size: Size) -> Section:
    """A node's RAM, moment by moment."""
    rows: list[tuple[str, ...]] = []
    strong: list[int] = []
    listed: dict[str, str] = {}
    for moment in found.host:
        strong.append(len(rows))
        band = moment.band
        rows.append((moment.name, "", size(band.low), size(band.expected), size(band.high)))
        before = dict.fromkeys(listed[part.name] for part in moment.parts if part.name in listed)
        rows += [(f"  what was listed at {name}", "", "", "", "") for name in before]
        for part in moment.parts:
            if listed.setdefault(part.name, moment.name) != moment.name:
                continue
            row = (size(part.size.low), size(part.size.expected), size(part.size.high))
            rows.append((f"  {part.name}", f"{part.count:,} x", *row))
    title = f"Host memory of a node with {found.together:,} of the ranks"
    header = ("moment, part", "", "low", "expected", "high")
    return Section(title, (), header, tuple(rows), (1, 2, 3, 4), tuple(strong))


def checkpoint_sections(found: Checkpoint, size: Size) -> Iterator[Section]:
    """A checkpoint's files, how many are kept, and what resumes it."""
    rows = tuple(
        (one.name, one.what, f"{one.by}{', kept once' * one.once}", f"{one.count:,}", size(one.bytes), size(one.total))
        for one in found.files
    )
    header = ("file", "holds", "written by", "files", "largest", "together")
    parts = f"{size(found.rank_bytes)} by the busiest rank, {size(found.weights_only)} of weights"
    text = [f"{size(found.total)} in all, {parts}"]
    if found.kept > 1 or found.limit is not None:
        text.append(f"{found.kept:,} on disk at most: {size(found.disk)}")
    if found.seconds is not None:
        text.append(f"{seconds(found.seconds)} at least to write one")
    text += [f"resume       {found.resume.same}", f"elsewhere    {found.resume.other}", *found.notes]
    inner = "" if found.resume is found.format else f": {found.resume.name}"
    yield Section(f"A checkpoint ({found.format.name}{inner})", tuple(text), header, rows, (3, 4, 5))
    yield Section("", (f"Source: {found.format.source}; metadata, schedules and random states are not counted",))


def resume_section(found: Resume, size: Size) -> Section:
    """What the ranks of another run read of it."""
    files = "a file" if found.files == 1 else f"{found.files:,} files"
    text = [
        found.way,
        f"{size(found.rank_bytes)} by the rank that reads most, from {files}; "
        f"{size(found.total)} by all, of {size(found.stored)} stored",
        f"{size(found.host)} of a rank's host memory at once",
    ]
    if found.conversion is not None:
        made = found.conversion
        text.insert(0, f"converted first: {size(made.host)} of host memory, {size(made.disk)} of disk meanwhile, "
                       f"{size(made.written)} written")  # fmt: skip
    many = "rank" if found.ranks == 1 else "ranks"
    return Section(f"Resumed on {found.ranks:,} {many}", (*text, f"Source: {found.source}"))


def seconds(value: float) -> str:
    """`4.21 s`, or milliseconds below one."""
    return f"{value:.3g} s"
