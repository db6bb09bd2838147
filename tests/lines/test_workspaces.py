"""Workspaces of libraries."""

from __future__ import annotations

import pytest

from trainledger.lines.workspaces import matmul_workspace

MIB = 2**20


@pytest.mark.parametrize(
    ("architecture", "release", "size"),
    [
        ("sm80", "2.13", 8 * MIB + 128 * 1024),
        ("sm90", "2.4", 32 * MIB),
        ("sm100", "2.11", 8 * MIB + 128 * 1024),
        ("sm100", "2.12", 32 * MIB),
    ],
)
def test_matmul_workspace(architecture: str, release: str, size: int) -> None:
    assert matmul_workspace(architecture, release) == size
