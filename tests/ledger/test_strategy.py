"""Which strategy a plan runs, and with which settings."""

from __future__ import annotations

import pytest

from tests.plans import plan_of
from trainledger.ledger.strategy import fsdp_of, waits


@pytest.mark.parametrize(
    ("parallel", "version"),
    [
        ({"strategy": "ddp", "dp": 2}, 0),
        ({"strategy": "fsdp1", "dp": 2}, 1),
        ({"strategy": "fsdp1-noshard", "dp": 2}, 1),
        ({"strategy": "fsdp2", "dp": 2}, 2),
        ({"strategy": "hsdp", "dp": 4, "shard": 2}, 2),
        ({"strategy": "hsdp", "dp": 4, "shard": 2, "options": {"fsdp_version": 1}}, 1),
    ],
)
def test_the_version_of_fsdp(parallel: dict[str, object], version: int) -> None:
    assert fsdp_of(plan_of(parallel=parallel)) == version


def test_accelerate_reduces_in_the_last_micro_batch_unless_told_otherwise() -> None:
    stack = {"versions": {"accelerate": "1.10.0"}}
    parallel = {"strategy": "fsdp2", "dp": 2}
    assert waits(plan_of(stack=stack, parallel=parallel))
    assert not waits(plan_of(parallel=parallel))
    assert not waits(plan_of(stack=stack, parallel={**parallel, "options": {"no_sync": False}}))
