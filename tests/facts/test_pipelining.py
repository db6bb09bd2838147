"""What a stage of torch.distributed.pipelining keeps until the next step, by release and by day."""

from __future__ import annotations

import pytest

from trainledger.facts.pipelining import ROWS, Keeps, keeps
from trainledger.facts.torchtitan_days import torch_at


def test_the_day_of_a_change_belongs_to_its_release() -> None:
    for row in ROWS.values():
        assert torch_at(row.day) == row.release


@pytest.mark.parametrize(
    "what, torch, torchtitan, kept",
    [
        (Keeps.REDUCED, "2.6.0", "", True),
        (Keeps.REDUCED, "2.7.0", "2024-12-26", False),
        (Keeps.REDUCED, "2.7", "2024-12-26", True),
        (Keeps.OUTPUTS, "2.8", "2025-05-13", True),
        (Keeps.OUTPUTS, "2.8", "2025-05-14", False),
        (Keeps.SLOPES, "2.9.1", "2026-01-01", True),
        (Keeps.SLOPES, "2.10", "", False),
        (Keeps.SLOPES, "", "", False),
    ],
)
def test_a_release_counts_or_the_day_of_the_main_branch(what: Keeps, torch: str, torchtitan: str, kept: bool) -> None:
    assert keeps(what, torch, torchtitan) is kept
