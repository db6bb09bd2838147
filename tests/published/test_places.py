"""What is published of checkpoints, offload and places: each statement, reproduced by the program.

Sources: an introduction to training memory and a lesson on model states (both in Chinese), ZeRO-Infinity
(arXiv:2104.07857), ZeRO-Offload (arXiv:2101.06840). Tolerances are in each test.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.disk import beside
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.review import review
from trainledger.answer.states import checkpoint_bytes, rank_bytes
from trainledger.answer.traffic import LINK
from trainledger.base.places import Place
from trainledger.base.units import GB, TB
from trainledger.facts.dtypes import BF16, FP32
from trainledger.facts.recipes import RECIPES, SPLITS

SEVEN = 7_000_000_000
MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
EIGHTEEN = {"weights": "bf16", "gradients": "fp32", "master": "fp32"}


def made(**sections: Any) -> Estimate:
    return estimate(plan_of(**{"batch": {"sequence": 16}, **sections}))


def test_a_checkpoint_is_weights_and_optimizer_without_gradients() -> None:
    """M = N (bp + bo) + metadata: 14 bytes a parameter of the 16 that training holds."""
    answer = made(precision=MIXED, save={"format": "torch"})
    found, count = beside(answer).checkpoint, answer.parameters.total
    assert found.total == count * (2 + 12)
    assert found.weights_only == count * 2


def test_seven_billion_weights_take_14_gb_and_their_full_checkpoint_98() -> None:
    """'bf16 7B weights are about 14 GB, a full optimizer checkpoint may pass 100 GB': 98 GB of tensors, 112 with an
    export of the weights beside it."""
    found = checkpoint_bytes(RECIPES["mixed"], SEVEN)
    assert (found.weights_only, found.full, found.full_and_export) == (14 * GB, 98 * GB, 112 * GB)


def test_a_full_state_dict_comes_together_on_one_rank() -> None:
    """Saving whole: dtype x P on one rank's host, whatever the number of ranks that shard it."""
    for ranks in (2, 8):
        parallel = {"strategy": "fsdp2", "dp": ranks, "options": {"state_dict_type": "FULL_STATE_DICT"}}
        answer = made(parallel=parallel, precision={"weights": "fp32", "gradients": "fp32", "compute": "bf16"})
        save = {one.name: one for one in beside(answer).host}["save"]
        (whole,) = [one for one in save.parts if one.name.startswith("whole state dict")]
        assert whole.count == 1
        assert whole.size.expected == 8 * answer.parameters.total  # Adam's states, larger than the weights


@pytest.mark.parametrize(
    ("strategy", "format_", "word"),
    [
        ("zero3", "deepspeed", "same number of data-parallel ranks"),
        ("zero2", "deepspeed", "same number of data-parallel ranks"),
        ("fsdp2", "fsdp-sharded", "any number of ranks"),
    ],
)
def test_a_sharded_checkpoint_suits_the_topology_that_wrote_it(strategy: str, format_: str, word: str) -> None:
    """Another number of ranks, or another framework, may need a conversion first."""
    precision = MIXED if strategy.startswith("zero") else {}
    found = beside(made(parallel={"strategy": strategy, "dp": 4}, precision=precision)).checkpoint
    assert found.resume.name == format_
    assert word in found.resume.same
    assert any(tool in found.resume.other for tool in ("ds_to_universal", "merge-weights"))


def test_memory_that_holds_a_run_says_nothing_of_the_disk() -> None:
    """'That memory suffices does not mean that the disk can hold the checkpoint.'"""
    answer = made(precision=MIXED, save={"limit": 2, "disk": "10MB"})
    assert answer.verdict.outcome == "does-not-fit"
    failing = [reason for reason in answer.verdict.reasons if "even the low end" in reason]
    assert [reason.partition(",")[0] for reason in failing] == ["disk"]
    assert made(precision=MIXED).verdict.outcome == "fits"


def test_states_behind_a_slow_memory_save_the_device_and_cost_the_update() -> None:
    """Master weights and Adam's states elsewhere: 12 of 18 bytes leave the device, and the update is bound there."""
    device = {"name": "asic", "memory": "8GiB", "bandwidth": "1TB", "link": "64GB"}
    tiers = [{"name": "pool", "place": "remote", "bytes": "1TiB", "bandwidth": "10GB"}]
    places = {"places": {"master_weights": "remote", "optimizer_states": "remote"}}
    here = made(precision=EIGHTEEN, device=device)
    away = made(precision=EIGHTEEN, device={**device, "tiers": tiers}, offload=places)
    count = here.parameters.total
    last = "step 2: optimizer"
    sizes = [{one.name: one.allocated for one in found.ledger.moments}[last] for found in (here, away)]
    assert sizes[0] - sizes[1] == pytest.approx(12 * count, rel=0.01)
    seconds = {one.place: one.seconds or 0 for one in beside(away).traffic}
    before = {one.place: one.seconds or 0 for one in beside(here).traffic}
    assert seconds["remote"] == pytest.approx(24 * count / (10 * GB), rel=0.01)
    assert seconds["remote"] > 10 * before["device"]
    assert away.verdict.outcome == "fits"
    assert away.verdict.reasons[-1].endswith("at least: pool")


def test_five_trillion_parameters_in_the_ledger_of_eighteen_bytes() -> None:
    """90 TB of states; on 8 ranks of a distributed optimizer 6 + 12/8 bytes a parameter stay on each."""
    recipe = RECIPES["bf16-fp32grad"]
    assert checkpoint_bytes(recipe, 5_000_000_000_000).full == 70 * TB
    assert rank_bytes(recipe, SPLITS["distributed-optimizer"], 5_000_000_000_000, 8) == 37.5 * TB


def test_the_review_has_the_column_of_places() -> None:
    """Where each state lies: HBM, on-chip SRAM, the host's memory, or beyond a network."""
    places = {"weights": "on-chip", "gradients": "device", "master_weights": "host", "optimizer_states": "remote"}
    found = {one.field: one.place for one in review(made(precision=EIGHTEEN, offload={"places": places})).rows}
    assert [found[name] for name in ("compute weights", "gradients", "master weights", "optimizer states")] == [
        "on-chip", "device", "host", "remote",
    ]  # fmt: skip


def test_offloading_the_optimizer_takes_sixteen_bytes_of_the_host() -> None:
    """ZeRO-Offload: fp32 gradients, master weights and moments, and 2 more for the 16-bit weights or gradients."""
    sections = {"precision": MIXED, "offload": {"optimizer": "cpu"}, "optimizer": {"implementation": "cpu"}}
    unlocked = {"offload_optimizer": {"pin_memory": False}}  # page-locked tensors are rounded up
    answer = made(**sections, parallel={"strategy": "zero3", "dp": 4, "options": unlocked})
    size = sum(line.unit * copies for line, copies in answer.ledger.host)
    assert size == pytest.approx((16 + 2) * answer.parameters.total / 4, rel=0.01)
    assert all(line.place is Place.HOST for line, _ in answer.ledger.host)


def test_states_on_nvme_still_pass_through_buffers_of_the_host() -> None:
    """ZeRO-Infinity: buffer_count x buffer_size of page-locked memory; 16 bytes a parameter lie on NVMe."""
    sections = {"precision": MIXED, "offload": {"optimizer": "nvme"}, "optimizer": {"implementation": "cpu"}}
    answer = made(**sections, parallel={"strategy": "zero3", "dp": 4})
    sizes = dict.fromkeys(Place, 0)
    for line, copies in answer.ledger.host:
        sizes[line.place] += line.unit * copies
    assert sizes[Place.NVME] == pytest.approx(16 * answer.parameters.total / 4, rel=0.01)
    assert sizes[Place.HOST] > 0
    assert {one.place for one in beside(answer).traffic} == {"host", "nvme", LINK}


def test_an_update_reads_and_writes_every_state_once() -> None:
    """The floor of a step is bytes over bandwidth: 25.6e9 fp32 states, there and back on 204.8 GB/s, take a second."""
    states = FP32.bytes_of(25_600_000_000)
    assert (states + states) / (204.8 * GB) == pytest.approx(1.0)
    answer = made(precision=MIXED, node={"ranks": 1, "memory": "1TiB", "memory_bandwidth": "204.8GB"},
                  offload={"places": {"optimizer_states": "host"}})  # fmt: skip
    host = {one.place: one for one in beside(answer).traffic}["host"]
    size = sum(line.unit * copies for line, copies in answer.ledger.host)
    assert (host.read, host.written) == (size, size)
    assert host.seconds == pytest.approx(2 * size / (204.8 * GB))
    assert BF16.bytes_of(SEVEN) == 14 * GB
