"""Rows of published operator benchmarks, held against their estimates."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.ledger.operators import OperatorRun, operator_peak

Row = tuple[str, str, dict[str, Any], int]  # operator, implementation, shape, bytes


def named(rows: tuple[Row, ...]) -> Any:
    """A test's parameters `row`, each under its operator and implementation."""
    return pytest.mark.parametrize("row", rows, ids=[f"{row[0]}-{row[1]}" for row in rows])


def difference(row: Row, dtype: str | None, release: str, device: str, passes: str = "forward+backward") -> int:
    """Estimate less measurement, in bytes."""
    operator, implementation, shape, measured = row
    peak = operator_peak(OperatorRun(operator, implementation, shape, dtype, passes, release=release, device=device))
    assert peak is not None
    return peak - measured
