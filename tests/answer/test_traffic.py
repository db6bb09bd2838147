"""The least time of an update: bytes read and written once each, over the bandwidth that ranks share."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.disk import beside
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.traffic import LINK, Traffic
from trainledger.base.units import GB

MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
NODE = {"ranks": 8, "memory": "1TiB", "memory_bandwidth": "400GB", "nvme": "8TB", "nvme_bandwidth": "20GB"}


def made(**sections: Any) -> tuple[Estimate, dict[str, Traffic]]:
    answer = estimate(plan_of(batch={"sequence": 16}, node=NODE, **sections))
    return answer, {one.place: one for one in beside(answer).traffic}


def test_adam_on_the_device_reads_and_writes_every_state_once() -> None:
    """Read: gradient 2, master 4, moments 8; written: master 4, moments 8, weight 2. Tensors come in blocks of 512."""
    answer, found = made(precision=MIXED)
    count = answer.parameters.total
    assert set(found) == {"device"}
    one = found["device"]
    assert one.read == pytest.approx(14 * count, rel=0.01)
    assert one.written == pytest.approx(14 * count, rel=0.01)
    assert one.seconds == pytest.approx((one.read + one.written) / (2039 * GB))


def test_without_master_weights_the_weights_themselves_are_read() -> None:
    answer, found = made()
    assert found["device"].read == pytest.approx(8 * answer.parameters.total, rel=0.01)  # weight, gradient, moments
    assert found["device"].written == pytest.approx(6 * answer.parameters.total, rel=0.01)


def test_an_optimizer_without_states_moves_gradients_and_weights() -> None:
    answer, found = made(optimizer={"name": "sgd", "implementation": "foreach"})
    assert (found["device"].read, found["device"].written) == tuple(size * answer.parameters.total for size in (4, 2))


def test_the_host_steps_what_deepspeed_offloads() -> None:
    """Per element: 4 + 8 of states both ways, the fp32 gradient read, the 16-bit weight written; over all ranks."""
    sections = {
        "precision": MIXED, "parallel": {"strategy": "zero3", "dp": 8}, "offload": {"optimizer": "cpu"},
        "optimizer": {"implementation": "cpu"},
    }  # fmt: skip
    answer, found = made(**sections)
    host, link = found["host"], found[LINK]
    part = -(-answer.parameters.total // 8)
    assert host.read == pytest.approx(16 * part, rel=0.01)
    assert host.written == pytest.approx(14 * part, rel=0.01)
    assert host.shared_by == 8
    assert host.seconds == pytest.approx((host.read + host.written) * 8 / (400 * GB))
    assert (link.read, link.written) == (pytest.approx(2 * part, rel=0.01), pytest.approx(2 * part, rel=0.01))
    assert link.seconds == pytest.approx(max(link.read, link.written) / link.bandwidth if link.bandwidth else 0)


def test_states_on_nvme_pass_through_the_host() -> None:
    sections = {
        "precision": MIXED, "parallel": {"strategy": "zero3", "dp": 8}, "offload": {"optimizer": "nvme"},
        "optimizer": {"implementation": "cpu"},
    }  # fmt: skip
    answer, found = made(**sections)
    part = -(-answer.parameters.total // 8)
    assert found["nvme"].read == pytest.approx(16 * part, rel=0.01)  # with the gradients that wait there
    assert found["nvme"].written == pytest.approx(12 * part, rel=0.01)
    assert found["nvme"].seconds == pytest.approx(28 * part * 8 / (20 * GB), rel=0.01)
    assert found["host"].written == pytest.approx((2 + 2 * 12 + 4) * part, rel=0.01)
    assert found["host"].read == pytest.approx((2 * 12 + 4) * part, rel=0.01)


def test_fsdp_steps_on_the_host_where_its_shards_lie() -> None:
    parallel = {"strategy": "fsdp2", "dp": 8}
    answer, found = made(parallel=parallel, offload={"params": "cpu"}, optimizer={"implementation": "foreach"})
    part = answer.parameters.total / 8
    assert "device" not in found
    assert found["host"].read == pytest.approx(8 * part, rel=0.02)
    assert found[LINK].seconds is not None


def test_states_that_only_lie_elsewhere_cross_the_link_both_ways() -> None:
    answer, found = made(precision=MIXED, offload={"places": {"optimizer_states": "host"}})
    assert found["host"].read == found["host"].written == found[LINK].read
    assert found["host"].read == pytest.approx(8 * answer.parameters.total, rel=0.01)
    assert found["device"].read == pytest.approx(6 * answer.parameters.total, rel=0.01)


def test_only_what_is_trained_is_updated() -> None:
    answer, found = made(trainable=["lm_head"])
    assert found["device"].read == pytest.approx(8 * answer.parameters.trainable, rel=0.01)


@pytest.mark.parametrize(("fraction", "places"), [(0.0, {"device"}), (0.5, {"device", "host", "link"})])
def test_what_megatron_s_optimizer_leaves_on_the_device_is_stepped_there(fraction: float, places: set[str]) -> None:
    """Read: fp32 gradient 4, master 4, moments 8; written: master 4, moments 8, weight 2."""
    model = {
        "model_type": "megatron-gpt", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 4, "vocab_size": 1024, "max_position_embeddings": 512,
    }  # fmt: skip
    plan = plan_of(
        model,
        precision={**MIXED, "gradients": "fp32", "compute": "bf16", "autocast": False},
        parallel={"strategy": "megatron-distopt", "dp": 2, "options": {"optimizer_offload_fraction": fraction}},
        stack={"framework": "megatron", "versions": {"torch": "2.13.0", "megatron-core": "0.14.0"}, "loss": None},
        optimizer={"implementation": None}, offload={"optimizer": "cpu"}, batch={"sequence": 64}, node=NODE,
    )  # fmt: skip
    answer = estimate(plan)
    found = {one.place: one for one in beside(answer).traffic}
    assert set(found) == places
    own = [one for place, one in found.items() if place != LINK]
    assert sum(one.read for one in own) == pytest.approx(16 * answer.parameters.total / 2, rel=0.01)
    assert sum(one.written for one in own) == pytest.approx(14 * answer.parameters.total / 2, rel=0.01)


@pytest.mark.parametrize("place", ["host", "nvme", "remote"])
def test_gradients_and_weights_are_read_and_written_where_they_lie(place: str) -> None:
    """Without master weights: gradient 2 and weight 2 read there, weight 2 written; the device has the moments."""
    node = {"node": {**NODE, "remote": "8TB", "remote_bandwidth": "10GB"}}
    plan = plan_of(batch={"sequence": 16}, **node, offload={"places": {"gradients": place, "weights": place}})
    answer = estimate(plan)
    found = {one.place: one for one in beside(answer).traffic}
    count = answer.parameters.total
    assert (found[place].read, found[place].written) == (4 * count, 2 * count)
    assert (found[LINK].read, found[LINK].written) == (4 * count, 2 * count)
    assert found["device"].read == found["device"].written == pytest.approx(4 * count, rel=0.01)
    assert found[place].seconds is not None
