"""What DeepSpeed would refuse, by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError


@pytest.mark.parametrize(
    ("ratio", "section", "found"),
    [
        (1.5, {}, "found 1.5"),
        (0.5, {"device": "nvme"}, "found 0.5 with nvme"),
        (0.5, {"optimizer": {"name": "lion"}}, "found 0.5 with lion"),
    ],
)
def test_a_share_of_an_offloaded_optimizer_that_deepspeed_cannot_divide_is_refused(
    ratio: float, section: dict[str, Any], found: str
) -> None:
    device = section.get("device", "cpu")
    options = {"offload_optimizer": {"device": device, "ratio": ratio}}
    parallel = {"strategy": "zero3", "world": 4, "dp": 4, "options": options}
    with pytest.raises(InputError, match=rf"parallel.options.offload_optimizer.ratio.*{found}"):
        estimate(plan_of(parallel=parallel, optimizer=section.get("optimizer", {})))


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_stages_that_do_not_read_a_ratio_refuse_it_since_a_release(strategy: str) -> None:
    parallel = {"strategy": strategy, "world": 4, "dp": 4}
    split, whole = ({"offload_optimizer": {"device": "cpu", **more}} for more in ({"ratio": 0.5}, {}))
    older = {"versions": {"deepspeed": "0.14.5"}}
    found = [estimate(plan_of(parallel={**parallel, "options": one}, stack=older)).peak for one in (split, whole)]
    assert found[0] == found[1]
    with pytest.raises(InputError, match=r"offload_optimizer.ratio: found 0.5 with zero.* in stage 3 alone"):
        estimate(plan_of(parallel={**parallel, "options": split}))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"options": {"zero_hpz_partition_size": 3}}, r"zero_hpz_partition_size: found 3; .* Did you mean 2\?"),
        ({"options": {"mics_shard_size": 3}}, r"mics_shard_size: found 3; .* Did you mean 2\?"),
        ({"options": {"mics_shard_size": 2}, "version": "0.19.8"}, "mics_shard_size: given with DeepSpeed 0.19.8"),
        (
            {"options": {"offload_param": {"device": "nvme", "buffer_size": 1000}}, "wide": True},
            "buffer_size: found 1,000",
        ),
        (
            {"options": {"offload_optimizer": {"device": "cpu"}}, "optimizer": "adamw-8bit"},
            "steps adam, adamw, lion, adagrad",
        ),
        ({"optimizer": "muon"}, "it reads matrices, and zero3 gives it flat parts"),
        ({"norms": "fp32"}, "precision.norms: found 'fp32' under zero3; DeepSpeed's engine casts"),
        ({"strategy": "zero2", "adapter": "fp32"}, "adapter.dtype: found 'fp32' under zero2; DeepSpeed's engine casts"),
        ({"adapter": None, "kind": "int8"}, "quantization.kind: found 'int8' under zero3"),
        (
            {"strategy": "zero2", "adapter": None, "kind": "fp8", "version": "0.18.9"},
            "quantization.kind: found 'fp8' under zero2",
        ),
    ],
)
def test_what_deepspeed_itself_refuses_is_named(sections: dict[str, Any], message: str) -> None:
    parallel = {"strategy": sections.get("strategy", "zero3"), "world": 4, "options": sections.get("options", {})}
    given: dict[str, Any] = {"parallel": parallel, "optimizer": {"name": sections.get("optimizer", "adamw")}}
    if "version" in sections:
        given["stack"] = {"versions": {"deepspeed": sections["version"]}}
    if "norms" in sections:
        given["precision"] = {"norms": sections["norms"]}
    if "adapter" in sections:
        adapter = {"kind": "lora", "r": 8, "targets": "all-linear"}
        given["adapter"] = {**adapter, "dtype": sections["adapter"]} if sections["adapter"] else adapter
    if "kind" in sections:
        given["quantization"] = {"kind": sections["kind"]}
    with pytest.raises(InputError, match=message):
        estimate(plan_of("llama-3.2-1b" if "wide" in sections else LLAMA, **given))


def test_the_second_parts_of_a_group_as_large_as_the_world_are_those_of_all_ranks() -> None:
    """DeepSpeed makes the group no larger than the world."""
    peaks = []
    for size in (2, 4, 64):
        options = {"zero_hpz_partition_size": size, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}
        parallel = {"strategy": "zero3", "world": 4, "options": options}
        peaks.append(estimate(plan_of(LLAMA, parallel=parallel)).peak.allocated)
    assert peaks[0] != peaks[1] == peaks[2]


def test_parts_that_the_8_bit_quantizer_cannot_take_are_named() -> None:
    parallel = {"strategy": "zero3", "world": 3, "dp": 3, "options": {"zero_quantized_weights": True}}
    with pytest.raises(InputError, match=r"zero_quantized_weights.*a part of .* has 87,382 elements"):
        estimate(plan_of(LLAMA, parallel=parallel))
