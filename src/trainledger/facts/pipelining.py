"""torch.distributed.pipelining: what a stage keeps until the next step, in which releases of PyTorch.

Read in source at the releases named: torch/distributed/pipelining/{stage,schedules,_backward}.py, v2.5 to v2.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.torchtitan_days import changed


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
    """Whether a stage keeps it under PyTorch's release, or that of the day of a version of torchtitan."""
    row = ROWS[what]
    return not changed(row.release, row.day, torch, torchtitan)
