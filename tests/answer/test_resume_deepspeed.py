"""DeepSpeed's universal checkpoints, against counts by hand and what holds of every number of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.resume_deepspeed import conversion, parameters, read_whole
from trainledger.model.build import model_of
from trainledger.model.counts import total

MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
PLAN = plan_of(precision=MIXED, parallel={"strategy": "zero2", "dp": 4}, stack={"framework": "deepspeed"})
MODEL = model_of(PLAN)
COUNT = total(MODEL)
WORDS = LLAMA["vocab_size"] * LLAMA["hidden_size"]


def other(strategy: str, dp: int) -> object:
    return plan_of(precision=MIXED, parallel={"strategy": strategy, "dp": dp}, stack={"framework": "deepspeed"})


def test_a_parameter_is_three_files_of_fp32() -> None:
    rows = parameters(PLAN, MODEL)
    assert len(rows) == 3 * 9 + 3  # nine of each layer, the embedding, the last norm, the head
    assert sum(one.bytes for one in rows) == 12 * COUNT
    assert {one.number for one in rows} == {3}
    assert rows[0].largest == 4 * WORDS  # the embedding comes first


def test_one_rank_reads_everything_once() -> None:
    ((size, files),), largest = read_whole(
        PLAN, MODEL, plan_of(precision=MIXED, parallel={"strategy": "zero2", "dp": 1})
    )
    assert (size, files, largest) == (12 * COUNT, 3 * 30, 4 * WORDS)


def test_under_stage_3_every_rank_reads_all() -> None:
    plan = plan_of(precision=MIXED, parallel={"strategy": "zero3", "dp": 3}, stack={"framework": "deepspeed"})
    ranks, _ = read_whole(PLAN, MODEL, plan)
    assert ranks == [(12 * COUNT, 90)] * 3


def test_two_ranks_share_the_parameter_between_them() -> None:
    plan = plan_of(precision=MIXED, parallel={"strategy": "zero1", "dp": 2}, stack={"framework": "deepspeed"})
    ranks, _ = read_whole(PLAN, MODEL, plan)
    rows, start, shared = parameters(PLAN, MODEL), 0, 0
    half = -(-COUNT // 2)
    for one in rows:
        shared += one.bytes * (start < half < start + one.elements)
        start += one.elements
    assert sum(size for size, _ in ranks) == 12 * COUNT + shared


@given(st.integers(1, 64))
def test_all_ranks_read_at_least_all_of_it(dp: int) -> None:
    plan = PLAN.model_copy(update={"parallel": PLAN.parallel.model_copy(update={"world": dp, "dp": dp, "shard": dp})})
    ranks, largest = read_whole(PLAN, MODEL, plan)
    assert len(ranks) == dp
    assert sum(size for size, _ in ranks) >= 12 * COUNT
    assert largest == 4 * WORDS


@pytest.mark.parametrize("part", [1, 10**9])
def test_a_conversion_holds_four_parts_or_two_joined_parameters(part: int) -> None:
    made = conversion(PLAN, MODEL, part, 2 * COUNT)
    assert made.host == max(4 * part, 2 * 2 * 4 * WORDS)
    assert made.written == 12 * COUNT + 2 * COUNT
    assert made.disk == 2 * 12 * COUNT + 2 * COUNT
