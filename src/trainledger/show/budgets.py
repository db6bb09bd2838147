"""Budgets besides the device's memory as plain data."""

from __future__ import annotations

from typing import Any

from trainledger.answer.bands import Band
from trainledger.answer.budgets import Budgets


def places_data(found: Budgets) -> list[dict[str, Any]]:
    """Budgets besides the device's memory: what each place has to hold, of how many ranks, and whether it fits."""
    return [
        {
            "place": one.place, "name": one.name, "moment": one.moment, "need": band(one.need),
            "capacity": one.capacity, "ranks": one.shared_by, "outcome": one.verdict.outcome,
            "margin": one.verdict.margin,
        }
        for one in found.budgets
    ]  # fmt: skip


def update_data(found: Budgets) -> list[dict[str, Any]]:
    """What one update reads and writes at each place (bytes of a rank), and the seconds that it takes at least."""
    return [
        {
            "place": one.place, "name": one.name, "read": one.read, "written": one.written, "ranks": one.shared_by,
            "bandwidth": one.bandwidth, "seconds": one.seconds,
        }
        for one in found.traffic
    ]  # fmt: skip


def host_data(found: Budgets) -> dict[str, Any]:
    """A node's RAM: ranks on it, and its moments with their parts."""
    moments = [
        {
            "name": one.name,
            **band(one.band),
            "parts": [
                {"name": part.name, **band(part.size), "count": part.count, "source": str(part.source)}
                for part in one.parts
            ],
        }
        for one in found.host
    ]
    return {"ranks": found.together, "moments": moments}


def band(amount: Band) -> dict[str, int]:
    """A band as `{low, expected, high}`, bytes."""
    return {"low": amount.low, "expected": amount.expected, "high": amount.high}
