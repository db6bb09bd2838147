"""FSDP2 on a pretend process group: what one rank keeps, and what it gathers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plans import plan_of
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.plan_run import run_plan
from trainledger.evidence.trace.live.session import where_of
from trainledger.evidence.trace.record import Record
from trainledger.lines.line import Account

pytestmark = pytest.mark.filterwarnings("ignore")
MIXED = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32", "reduce": "fp32"}


def traced(world: int, **more: Any) -> Record:
    parallel = {"strategy": "fsdp2", "world": world, "dp": world, **more}
    plan = plan_of(precision=MIXED, parallel=parallel)
    return run_plan(plan, where_of(job_of(plan)))


def of(record: Record, account: Account) -> int:
    return sum(one.size for one in record.births if one.account == account)


def test_states_are_shards() -> None:
    """Padded along dim 0 per parameter: 256, 640 and 1024 rows divide, so a rank has exactly its part."""
    two, four = traced(2), traced(4)
    for account in (Account.WEIGHTS, Account.OPTIMIZER):
        assert of(two, account) == 2 * of(four, account)
    moments = [one.name for one in trace_of(four).moments]
    assert moments[-1] == "step 2: optimizer"


def test_gathered_weights_are_whole_and_in_the_compute_dtype() -> None:
    record = traced(4)
    whole = sum(4 * one.size for one in record.births if one.account == Account.WEIGHTS) // 2
    gathered = [one for one in record.births if one.op == "unsharded weights"]
    assert {one.dtype for one in gathered} == {"bfloat16"}
    assert sum(one.size for one in gathered) >= whole


def test_buffers_are_on_streams_of_their_own() -> None:
    assert len({one.stream for one in traced(4).births}) > 1


def test_kept_weights_are_not_gathered_again() -> None:
    again, kept = traced(4), traced(4, reshard_after_forward=False)
    assert len(again.births) > len(kept.births)
