"""What of an offloaded optimizer stays on the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_wrapper import RANKS, at_end, hosted, named, run, sizes
from trainledger.ledger.rank import Ledger
from trainledger.ledger.zero3_split import staying
from trainledger.lines.line import Account


@pytest.mark.parametrize(
    ("version", "count", "ratio", "expected"),
    [
        ("0.19.8", 10, 0.3, range(7)),
        ("0.18.0", 10, 0.3, range(7)),
        ("0.17.6", 10, 0.3, range(3, 10)),
        ("0.12.2", 10, 0.3, range(0)),
        ("0.19.8", 1, 0.3, range(0)),
        ("0.17.6", 1, 0.3, range(1)),
        ("0.19.8", 10, 1.0, range(0)),
        ("0.19.8", 10, 0.0, range(10)),
    ],
)
def test_which_sub_groups_stay(version: str, count: int, ratio: float, expected: range) -> None:
    """Whole sub-groups, rounded down: a single one goes to the host whatever the ratio, in older releases it stays."""
    assert list(staying(count, ratio, version)) == list(expected)


def split(ratio: float, **sections: Any) -> Ledger:
    """Every parameter a sub-group of its own."""
    options = {"sub_group_size": 1, "offload_optimizer": {"ratio": ratio}, "reduce_bucket_size": 1000}
    sections = {"optimizer": {"implementation": "cpu"}, "offload": {"optimizer": "cpu"}, **sections}
    return run("zero3", "0.19.4", parallel={"options": options}, **sections)[1]


def test_half_of_the_sub_groups_take_16_bytes_of_the_device_and_none_of_the_host() -> None:
    parts = [-(-size // RANKS) for size in sizes()]
    ledger = split(0.5)
    here = sum(parts[: int(0.5 * len(parts))])
    assert at_end(ledger, Account.MASTER) == 4 * here
    assert at_end(ledger, Account.OPTIMIZER) == 8 * here
    assert at_end(ledger, Account.GRADIENTS) == 4 * here
    assert hosted(ledger, lambda account: True) == 2 * sum(parts) + 16 * (sum(parts) - here)


def test_what_stays_is_updated_one_sub_group_at_a_time_by_torch() -> None:
    ledger = split(0.5)
    made = [size for size in named(ledger, "temporary of") if size]
    parts = [-(-size // RANKS) for size in sizes()]
    assert sorted(set(made)) == sorted(set(parts[: int(0.5 * len(parts))]))


def test_a_ratio_of_one_is_the_whole_optimizer_on_the_host() -> None:
    assert split(1.0).moments == split_left_out().moments


def split_left_out() -> Ledger:
    options = {"sub_group_size": 1, "reduce_bucket_size": 1000}
    given: dict[str, Any] = {"optimizer": {"implementation": "cpu"}, "offload": {"optimizer": "cpu"}}
    return run("zero3", "0.19.4", parallel={"options": options}, **given)[1]
