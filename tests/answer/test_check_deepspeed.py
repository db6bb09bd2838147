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
def test_stages_that_do_not_read_a_ratio_take_any(strategy: str) -> None:
    options = {"offload_optimizer": {"device": "cpu", "ratio": 0.5}}
    parallel = {"strategy": strategy, "world": 4, "dp": 4, "options": options}
    whole = {**parallel, "options": {"offload_optimizer": {"device": "cpu"}}}
    assert estimate(plan_of(parallel=parallel)).peak == estimate(plan_of(parallel=whole)).peak


def test_parts_that_the_8_bit_quantizer_cannot_take_are_named() -> None:
    parallel = {"strategy": "zero3", "world": 3, "dp": 3, "options": {"zero_quantized_weights": True}}
    with pytest.raises(InputError, match=r"zero_quantized_weights.*a part of .* has 87,382 elements"):
        estimate(plan_of(LLAMA, parallel=parallel))
