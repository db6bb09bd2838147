"""What is reserved on a device that has less than the run would take without a bound."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import cache

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.allocator.conf import parse_conf
from trainledger.allocator.replay import smallest_capacity
from trainledger.answer.bands import Band
from trainledger.answer.bounded import within
from trainledger.answer.estimate import Estimate, device_of, estimate
from trainledger.answer.replayed import replayed
from trainledger.base.units import MIB

SHAPE = {**LLAMA, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "vocab_size": 32000}


@cache
def on(memory: int) -> Estimate:
    device = {"memory": memory, "architecture": "sm80"}
    evaluation = {"micro_batch": 4, "sequence": 1024}
    return estimate(plan_of(SHAPE, batch={"micro_batch": 1, "sequence": 1024}, evaluation=evaluation, device=device))


@pytest.fixture
def free() -> Estimate:
    """On a device that has room for anything."""
    return on(2**40)


def outside(one: Estimate) -> int:
    return one.device.expected - one.peak.reserved.expected


def test_a_device_gives_no_more_than_it_has(free: Estimate) -> None:
    room = free.peak.reserved.expected - 128 * MIB
    bounded = on(room + outside(free))
    assert bounded.peak.allocated == free.peak.allocated
    assert free.peak.allocated.expected <= bounded.peak.reserved.expected <= room < free.peak.reserved.expected
    assert bounded.steps.reserved.expected == free.steps.reserved.expected < room
    assert bounded.peak.reserved.high == free.peak.reserved.high
    device = device_of(bounded.plan)
    assert device is not None
    assert device.usable_bytes is not None
    assert bounded.device.expected <= device.usable_bytes
    assert any("without a bound" in reason for reason in bounded.verdict.reasons)


def test_a_run_that_has_what_it_takes_or_does_not_fit_is_told_without_a_bound(free: Estimate) -> None:
    for memory in (free.device.expected + MIB, free.peak.allocated.expected // 2):
        assert on(memory).peak.reserved == free.peak.reserved


def test_what_waits_lies_beside_the_replay_as_far_as_there_is_room(free: Estimate) -> None:
    conf, peaks = parse_conf(""), (free.peak, free.steps)
    run = replayed(free.ledger, conf)
    assert run is not None
    found = smallest_capacity(run.stream, conf, MIB)
    held = free.peak.reserved.expected - 64 * MIB
    room = Band(held, held, held)
    alone = within(peaks, room, found, (run, conf))[0].reserved.expected
    for late, beside in ((0, 0), (MIB, min(MIB, held - alone)), (2**40, held - alone)):
        waiting = tuple(
            replace(one, active=Band(*(size + late for size in astuple(one.active)))) for one in (peaks[0], peaks[1])
        )
        assert within((waiting[0], waiting[1]), room, found, (run, conf))[0].reserved.expected == alone + beside
