"""Budgets besides the device's: each place judged against what it has, and the verdict names the one that fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.bands import Band
from trainledger.answer.budgets import Budget, folded
from trainledger.answer.disk import beside
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.node import node_of, tiers_of
from trainledger.answer.traffic import Traffic
from trainledger.answer.verdict import Verdict, judge
from trainledger.base.places import Place
from trainledger.base.problems import InputError
from trainledger.base.units import GIB, TIB

MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
TIERS = [
    {"name": "SRAM", "place": "on-chip", "bytes": "1MiB"},
    {"name": "pool", "place": "remote", "bytes": "1GiB", "bandwidth": "1GB", "shared_by": 4},
]


def made(**sections: Any) -> tuple[Estimate, dict[str, Budget]]:
    answer = estimate(plan_of(batch={"sequence": 16}, **sections))
    return answer, {one.place: one for one in beside(answer).budgets}


def test_a_known_node_with_a_word_of_ones_own() -> None:
    node = node_of(plan_of(node={"name": "dgx-h100", "memory": "1TiB"}))
    assert node is not None
    host = node.tier(Place.HOST)
    assert host is not None
    assert (node.ranks, host.bytes, host.bandwidth) == (8, TIB, 614_400_000_000)
    assert node_of(plan_of(node="dgx-h100")) is not None
    assert node_of(plan_of()) is None


def test_an_unknown_node_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean dgx-h100"):
        estimate(plan_of(node="dgx-h10"))
    assert estimate(plan_of(node={"name": "ours", "memory": "64GiB"})).verdict.outcome == "fits"


def test_the_node_s_word_stands_above_the_device_s() -> None:
    device = estimate(plan_of(device="gh200-96gb"))
    own = beside(device).budgets[0]
    assert (own.name, own.capacity) == ("Grace memory", 480_000_000_000)
    tiers = tiers_of(None, node_of(plan_of(node="gh200")))
    assert [tier.name for tier in tiers] == ["host memory"]


def test_what_is_put_on_chip_or_behind_a_network_is_judged_there() -> None:
    device = {"name": "asic", "memory": "8GiB", "tiers": TIERS}
    places = {"weights": "on-chip", "optimizer_states": "remote"}
    parallel = {"strategy": "ddp", "dp": 8}
    answer, found = made(precision=MIXED, device=device, parallel=parallel, offload={"places": places})
    count = answer.parameters.total
    assert found["on-chip"].need.expected == pytest.approx(2 * count, rel=0.01)
    assert found["remote"].need.expected == pytest.approx(4 * 8 * count, rel=0.01)
    assert (found["on-chip"].shared_by, found["remote"].shared_by) == (1, 4)
    assert found["on-chip"].verdict.outcome == answer.verdict.outcome == "does-not-fit"
    assert found["remote"].verdict.outcome == "fits"
    assert next(reason for reason in answer.verdict.reasons if ", steps: " in reason).startswith("SRAM")
    assert any("an update takes" in reason and reason.endswith("pool") for reason in answer.verdict.reasons)


def test_a_plan_that_says_nothing_of_places_is_judged_by_the_device_alone() -> None:
    answer, found = made()
    assert not any(reason.startswith("device memory") for reason in answer.verdict.reasons)
    assert {one.verdict.outcome for one in found.values()} == {None}


def budget(capacity: int, need: int) -> Budget:
    band = Band(need, need, need)
    return Budget("host", "host memory", "load", band, capacity, 8, judge(capacity, need, need, need))


def test_the_worst_outcome_stands_and_the_margin_is_the_device_s() -> None:
    device = judge(10 * GIB, GIB, GIB, GIB)
    good = folded(device, [budget(2 * GIB, GIB)], [])
    bad = folded(device, [budget(2 * GIB, GIB), budget(GIB, 2 * GIB)], [])
    assert (good.outcome, bad.outcome) == ("fits", "does-not-fit")
    assert good.margin == bad.margin == 9 * GIB
    assert bad.reasons[2].startswith("host memory, load: even the low end")


def test_states_that_fit_and_an_update_that_takes_four_seconds() -> None:
    """16 bytes of states read and written for 25.6e9 weights on a memory of 204.8 GB/s."""
    moved = Traffic("host", "host memory", 409_600_000_000, 409_600_000_000, 1, 204_800_000_000)
    found = folded(Verdict("fits", 0, ("fits",)), [budget(TIB, 410 * 10**9)], [moved])
    assert found.outcome == "fits"
    assert found.reasons[-1] == "an update takes 4 s at least: host memory"


def test_a_verdict_without_a_device_is_that_of_the_node() -> None:
    answer, _ = made(device=None, node={"ranks": 1, "memory": "256MiB"})
    assert (answer.verdict.outcome, answer.verdict.margin) == ("does-not-fit", None)


def test_a_node_that_fits_says_nothing_of_a_device_that_is_not_given() -> None:
    answer, found = made(device=None, node={"ranks": 1, "memory": "256GiB"})
    assert found["host"].verdict.outcome == "fits"
    assert answer.verdict.outcome is None


@pytest.mark.parametrize(("nvme", "outcome"), [(None, None), ("1TiB", "fits"), ("1KiB", "does-not-fit")])
def test_a_place_that_holds_tensors_and_has_no_size_cannot_be_judged(nvme: str | None, outcome: str | None) -> None:
    node = {"ranks": 8, "memory": "256GiB", "nvme": nvme}
    parallel = {"strategy": "zero3", "dp": 8}
    answer, _ = made(precision=MIXED, parallel=parallel, offload={"optimizer": "nvme"}, node=node)
    assert answer.verdict.outcome == outcome
    told = [reason for reason in answer.verdict.reasons if "cannot be judged" in reason]
    assert bool(told) == (nvme is None)
    assert all("node: {nvme: 30TB}" in reason for reason in told)
    assert [(one.place, [one.reason]) for one in answer.verdict.unjudged] == ([("nvme", told)] if told else [])


def test_what_cannot_be_judged_hides_nothing_that_does_not_fit() -> None:
    node = {"ranks": 8, "memory": "1MiB"}
    parallel = {"strategy": "zero3", "dp": 8}
    answer, _ = made(precision=MIXED, parallel=parallel, offload={"optimizer": "nvme"}, node=node)
    assert answer.verdict.outcome == "does-not-fit"
    assert answer.verdict.reasons[0].startswith("nvme, steps: cannot be judged")


def test_every_place_without_a_size_is_named_apart_from_the_reasons() -> None:
    offload, parallel = {"optimizer": "nvme"}, {"strategy": "zero3", "dp": 8}
    answer, _ = made(
        precision=MIXED, parallel=parallel, offload=offload, device=None, node={"ranks": 8, "memory": "256GiB"}
    )
    assert [one.place for one in answer.verdict.unjudged] == ["device", "nvme"]
    assert [one.place for one in made(device=None)[0].verdict.unjudged] == ["device"]
    assert made()[0].verdict.unjudged == ()


def test_a_node_without_name_or_memory_is_missing_its_name() -> None:
    with pytest.raises(InputError) as caught:
        made(node={"used": "1GiB"})
    (problem,) = caught.value.problems
    assert (problem.path, problem.found) == ("node.name", "missing")
