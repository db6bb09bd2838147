"""Kinds at other places: every byte is somewhere, and page-locked memory follows the allocator's settings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import plan_of
from trainledger.answer.estimate import architecture_of, device_of
from trainledger.base.places import Place
from trainledger.ledger.placed import moved
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.line import Account
from trainledger.lines.stream import total
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

MOVABLE = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER, Account.ACTIVATIONS)
MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
PLANS = [
    {"precision": MIXED},
    {"precision": MIXED, "parallel": {"strategy": "fsdp2", "dp": 4}},
    {"precision": MIXED, "parallel": {"strategy": "zero2", "dp": 2}},
    {"batch": {"accumulation": 2}, "optimizer": {"name": "adamw-8bit", "implementation": None}},
]


def ledger_of(plan: Plan) -> Ledger:
    return rank_ledger(plan, model_of(plan), architecture_of(device_of(plan)))


LEDGERS = [ledger_of(plan_of(**{**one, "batch": {"sequence": 64, **one.get("batch", {})}})) for one in PLANS]


@given(st.sampled_from(LEDGERS), st.dictionaries(st.sampled_from(MOVABLE), st.sampled_from(list(Place)[2:])))
def test_moving_a_kind_conserves_bytes(ledger: Ledger, places: dict[Account, Place]) -> None:
    """At every moment what left the device is what the device holds less, and no other line is touched."""
    away = moved(ledger, places)
    numbers = {number for number, line in enumerate(ledger.lines) if line.account in places}
    for segment, other in zip(ledger.segments, away.segments, strict=True):
        assert tuple(event for event in segment.events if abs(event) - 1 not in numbers) == other.events
    seen: dict[int, int] = {}
    running, here, there = [0] * len(ledger.lines), 0, 0
    for _, events, repeat, _ in ledger.segments:
        for event in events * repeat:
            line, step = abs(event) - 1, 1 if event > 0 else -1 if event else 0
            running[line] += step
            seen[line] = max(seen.get(line, 0), running[line])
            size = ledger.lines[line].unit * step
            here, there = (here, there + size) if line in numbers else (here + size, there)
            assert min(here, there) >= 0
    kept = {(line.name, line.account): copies for line, copies in away.host if line.account in places}
    assert kept == {
        (ledger.lines[number].name, ledger.lines[number].account): seen[number]
        for number in numbers
        if seen.get(number)
    }
    assert all(line.place is places[line.account] for line, _ in away.host if line.account in places)
    for moment in away.moments:
        assert total(away.lines, moment.live) == moment.allocated
        assert not any(away.lines[line].account in places for line, _ in moment.live)


@pytest.mark.parametrize("kind", ["master_weights", "optimizer_states", "weights"])
def test_states_are_whole_wherever_they_lie(kind: str) -> None:
    """What the plan names leaves the device with its bytes, to the last one."""
    plan = plan_of(precision=MIXED)
    here, away = ledger_of(plan), ledger_of(plan_of(precision=MIXED, offload={"places": {kind: "host"}}))
    account = Account(kind)
    last = {one.name: one for one in here.moments}["step 2: optimizer"]
    kept = sum(here.lines[line].unit * copies for line, copies in last.live if here.lines[line].account is account)
    assert kept > 0
    most = sum(line.unit * copies for line, copies in away.host if line.account is account)
    assert most == kept if account is not Account.WEIGHTS else most >= kept
    assert not any(away.lines[line].account is account for one in away.moments for line, _ in one.live)


def test_a_place_on_the_device_changes_nothing() -> None:
    assert ledger_of(plan_of(offload={"places": {"weights": "device"}})) == ledger_of(plan_of())


def test_page_locked_tensors_above_a_setting_are_not_rounded_up() -> None:
    def pinned(**allocator: int) -> list[tuple[int, int]]:
        options = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
        plan = plan_of(
            precision=MIXED, optimizer={"implementation": "cpu"}, offload={"optimizer": "cpu"},
            parallel={"strategy": "zero2", "dp": 2, "options": options}, stack={"allocator": allocator},
        )  # fmt: skip
        lines = [line for line, _ in ledger_of(plan).host if line.why.startswith("page-locked")]
        return [(line.unit, line.dtype.bytes_of(line.dims[0].size)) for line in lines]

    rounded, whole = pinned(), pinned(pinned_max_round_threshold_mb=1)
    assert len(rounded) == len(whole) > 0
    assert any(unit > size > 2**20 for unit, size in rounded)
    assert all(unit & (unit - 1) == 0 for unit, _ in rounded)
    assert all(unit == size for unit, size in whole if size > 2**20)
    assert pinned(pinned_max_cached_size_mb=1) == whole
