"""torch.distributed.pipelining: what a stage keeps until the next step, in which releases of PyTorch.

Read in source at the releases named: torch/distributed/pipelining/{stage,schedules,_backward}.py, v2.5 to v2.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.torchtitan_days import NEWEST, day_of
from trainledger.facts.versions import at_least, parse_version


class Keeps(StrEnum):
    """What a stage keeps until the next step."""

    OUTPUTS = "outputs"  # of every micro-batch, on every stage
    SLOPES = "slopes"  # the gradients of what it received, in the received tensors' `grad`
    REDUCED = "reduced"  # what its last reduction sent, which nothing waits for


@dataclass(frozen=True, slots=True)
class Row:
    """It keeps this before a release, and before the day on which PyTorch's main branch stopped."""

    keeps: Keeps
    release: str
    day: str
    source: Source


def _read(what: str, change: str) -> Source:
    return Source("PyTorch", f"torch/distributed/pipelining/{what}", change)


ROWS: dict[Keeps, Row] = {
    row.keeps: row
    for row in (
        Row(
            Keeps.REDUCED,
            "2.7",
            "2025-01-18",
            _read("stage.py, run_post_backward without _root_post_backward_final_callback", "v2.6; to #144535"),
        ),
        Row(Keeps.OUTPUTS, "2.8", "2025-05-14", _read("stage.py, output_chunks of every stage", "v2.7; to #153383")),
        Row(Keeps.SLOPES, "2.10", "2025-10-08", _read("_backward.py, stage_backward", "v2.9; to #164329")),
    )
}


def keeps(what: Keeps, torch: str, torchtitan: str) -> bool:
    """Whether a stage keeps it: under a release of PyTorch, or under the main branch (two numbers, or none) of the day
    on which a version of torchtitan was made."""
    row, version, day = ROWS[what], parse_version(torch) if torch else None, day_of(torchtitan)
    released = version is not None and torch.count(".") > 1
    if released or day == NEWEST:
        return not at_least(torch or None, row.release)
    return day < row.day
