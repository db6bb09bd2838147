"""What the allocator takes over a run whose samples have many lengths."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.allocator.conf import DEFAULT
from trainledger.answer import varied
from trainledger.answer.estimate import estimate
from trainledger.answer.varied import OverRun, over_run
from trainledger.base.problems import InputError
from trainledger.facts.varied import VARIED
from trainledger.plan.lengths import at_length

VALUES = [*range(40, 1000, 20), 1500, 2000]
BATCH = {"micro_batch": 1, "sequence": 2048, "accumulation": 4}
MODEL = {**LLAMA, "vocab_size": 32_000}  # logits of many lengths are the blocks that do not fit each other


def _over(lengths: object = VALUES, **sections: Any) -> OverRun | None:
    given = {"batch": BATCH, "lengths": lengths, **sections}
    return over_run(estimate(plan_of(model=MODEL, **given)))


def test_blocks_of_many_lengths_add_up() -> None:
    found = _over()
    assert found is not None
    least = estimate(plan_of(model=MODEL, batch=BATCH, lengths=VALUES)).steps.reserved.expected
    assert found.reserved.expected > 1.1 * least
    assert found.reserved.low <= found.reserved.expected <= found.reserved.high
    assert 1 < found.takes < 20
    assert found.micro_batches == VARIED.micro_batches


def test_expandable_segments_hold_little_more_than_the_longest_sample() -> None:
    found = _over()
    assert found is not None
    assert found.expandable is not None
    assert found.expandable < 1.05 * found.reserved.low
    own = _over(stack={"allocator": {"expandable_segments": True}})
    assert own is not None
    assert own.expandable is None
    assert own.reserved.expected == found.expandable


def test_only_a_micro_batch_longer_than_all_before_it_takes_memory() -> None:
    """All of an order against its records of length alone: the same bytes."""
    plan = plan_of(model=MODEL, batch=BATCH, lengths=VALUES)
    ledgers = varied._Ledgers(plan, None)
    for seed in range(3):
        random = Random(seed)
        every = [at_length(plan, random.choice(VALUES)) for _ in range(60)]
        longest, records = 0, []
        for one in every:
            if one.batch.sequence > longest:
                longest = one.batch.sequence
                records.append(one)
        whole, short = varied._order(ledgers, every, DEFAULT), varied._order(ledgers, records, DEFAULT)
        assert whole is not None
        assert short is not None
        assert len(records) < len(every) / 3
        assert whole.reserved == pytest.approx(short.reserved, rel=0.01)


def test_samples_end_to_end_are_drawn_by_their_sum() -> None:
    found = _over(lengths={"values": VALUES, "packing": "padding-free"}, batch={**BATCH, "micro_batch": 4})
    assert found is not None
    assert found.takes > 1


def test_a_curve_through_the_median_and_the_longest() -> None:
    found = _over(lengths={"median": 300, "longest": 2000})
    assert found is not None
    assert found.takes > 1


def test_a_full_device_gives_back_what_is_cached() -> None:
    free = _over()
    assert free is not None
    memory = f"{(free.device.low + free.device.high) // 2}B"
    found = _over(device={"name": "small", "memory": memory})
    assert found is not None
    assert 0 < found.full <= found.orders
    assert found.fails <= found.full
    assert found.device.high <= (free.device.low + free.device.high) // 2


@pytest.mark.parametrize("lengths", [[512, 512], {"longest": 400}, {"values": VALUES, "packing": "packed"}, None])
def test_lengths_that_do_not_vary_are_not_replayed(lengths: object) -> None:
    assert _over(lengths=lengths) is None if lengths else over_run(estimate(plan_of(batch=BATCH))) is None


def test_kernels_that_run_at_some_lengths_alone() -> None:
    """The embedding's kernel for many tokens is no line of a short micro-batch."""
    plan = plan_of(batch={"micro_batch": 2, "sequence": 4096}, lengths=[200, 700, 3000, 4000])
    assert over_run(estimate(plan)) is not None


def test_answers_repeat() -> None:
    assert _over() == _over()


def test_samples_that_are_dropped_leave_lengths_that_come_near_the_longest() -> None:
    """Cut samples reach the sequence at once, and then all blocks are there; dropped ones creep towards it."""
    values = [*range(100, 3000, 7)]
    cut, drop = (_over(lengths={"values": values, "longer": longer}) for longer in ("cut", "drop"))
    assert cut is not None
    assert drop is not None
    assert drop.takes > cut.takes
    assert drop.reserved.expected > 1.1 * cut.reserved.expected


def test_dropping_every_sample_is_refused() -> None:
    with pytest.raises(InputError, match="the shortest has 3,000 tokens"):
        estimate(plan_of(batch=BATCH, lengths={"values": [3000, 4000], "longer": "drop"}))


def test_rows_of_a_run_bring_their_masks() -> None:
    """Of every micro-batch that is replayed: the same as where the plan says outright that rows are padded."""
    several = {**BATCH, "micro_batch": 2}
    known, padded, alike = (
        _over({"values": VALUES, **more}, batch=several) for more in ({}, {"padded": True}, {"padded": False})
    )
    assert known is not None
    assert padded == known
    assert alike is not None
    assert known.reserved.expected > alike.reserved.expected
