"""Parts of a run and lengths of samples as sections of text and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trainledger.answer.estimate import Estimate
from trainledger.answer.lengths import AtLength, at_lengths
from trainledger.answer.tables import by_part
from trainledger.show.budgets import band
from trainledger.show.table import Section

Size = Callable[[int], str]


def parts_section(answer: Estimate, size: Size) -> Section:
    """Each part at its largest moment: step 1 against step 2, evaluation and save where the plan has them."""
    rows = tuple((row.name.partition(":")[0], size(row.allocated), row.name) for row in by_part(answer))
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


def parts_data(answer: Estimate) -> list[dict[str, Any]]:
    """Parts of the run: name, bytes and the moment."""
    return [
        {"part": row.name.partition(":")[0], "allocated": row.allocated, "moment": row.name} for row in by_part(answer)
    ]


def lengths_data(answer: Estimate) -> list[dict[str, Any]]:
    """One estimate for each length that the plan says."""
    return [
        {
            "name": one.name, "tokens": one.tokens, "rows": one.rows, "row_tokens": one.row_tokens,
            "moment": one.moment, "allocated": band(one.allocated), "device": band(one.device), "outcome": one.outcome,
        }
        for one in _found(answer)
    ]  # fmt: skip


def _found(answer: Estimate) -> Sequence[AtLength]:
    return at_lengths(answer.plan)
