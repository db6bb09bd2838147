"""Parts of a run and lengths of samples as sections of text and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainledger.answer.estimate import Estimate
from trainledger.answer.lengths import AtLength, at_lengths
from trainledger.answer.tables import by_part
from trainledger.answer.varied import OverRun, over_run
from trainledger.lines.moments import part_of
from trainledger.show.budgets import band
from trainledger.show.table import Section

Size = Callable[[int], str]


def parts_section(answer: Estimate, size: Size) -> Section:
    """Each part at its largest moment: step 1 against step 2, evaluation and save where the plan has them."""
    rows = tuple((part_of(row.name), size(row.allocated), row.name) for row in by_part(answer))
    return Section("Parts of the run, each at its largest moment", (), ("part", "allocated", "at"), rows, (1,))


def lengths_sections(answer: Estimate, size: Size) -> Iterator[Section]:
    """The longest sample against the others, where the plan says how long samples are."""
    rows = tuple(
        (
            one.name, f"{one.tokens:,}", f"{one.rows:,} x {one.row_tokens:,}", size(one.allocated.expected),
            size(one.device.high), one.moment, one.outcome or "",
        )
        for one in _found(answer)
    )  # fmt: skip
    header = ("samples", "tokens", "micro-batch", "allocated", "device at most", "at", "")
    yield Section("Lengths of samples", (), header, rows, (1, 2, 3, 4))
    whole = over_run(answer) if rows else None
    if whole is not None:
        yield Section("Over a run of samples in random order", tuple(_over_run(whole, size)))


def _over_run(whole: OverRun, size: Size) -> Iterator[str]:
    """The allocator over a whole run, in words."""
    reserved, shown = whole.reserved, whole.device
    yield (
        f"reserved {size(reserved.expected)} (between {size(reserved.low)} and {size(reserved.high)}), the device "
        f"shows {size(shown.expected)} (between {size(shown.low)} and {size(shown.high)})"
    )
    yield (
        f"{whole.takes} of {whole.micro_batches:,} micro-batches take memory from the device: each is longer than all "
        "before it, and blocks cached for shorter ones are too small for it"
    )
    if whole.full:
        failed = f"; in {whole.fails} of them that is not enough" if whole.fails else ""
        yield f"the device is full in {whole.full} of {whole.orders} orders: what is cached is given back{failed}"
    if whole.expandable is not None and whole.expandable < reserved.expected:
        yield (
            f"with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: {size(whole.expandable)}; with the longest sample "
            f"first: about {size(reserved.low)}"
        )


def parts_data(answer: Estimate) -> list[dict[str, Any]]:
    """Parts of the run: name, bytes and the moment."""
    return [{"part": part_of(row.name), "allocated": row.allocated, "moment": row.name} for row in by_part(answer)]


def lengths_data(answer: Estimate) -> list[dict[str, Any]]:
    """One estimate for each length that the plan says."""
    return [
        {
            "name": one.name, "tokens": one.tokens, "rows": one.rows, "row_tokens": one.row_tokens,
            "moment": one.moment, "allocated": band(one.allocated), "device": band(one.device), "outcome": one.outcome,
        }
        for one in _found(answer)
    ]  # fmt: skip


def over_run_data(answer: Estimate) -> dict[str, Any] | None:
    """The allocator over a run of samples in random order; None where the plan does not say how lengths differ."""
    whole = over_run(answer)
    if whole is None:
        return None
    return {
        "micro_batches": whole.micro_batches, "orders": whole.orders, "reserved": band(whole.reserved),
        "device": band(whole.device), "takes": whole.takes, "full": whole.full, "fails": whole.fails,
        "expandable_segments": whole.expandable,
    }  # fmt: skip


def _found(answer: Estimate) -> Sequence[AtLength]:
    return at_lengths(answer.plan)
