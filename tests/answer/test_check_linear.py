"""Linear attention where what runs it is not known: refused by the key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

FIVE = {"model_type": "qwen3_5_text", "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512}
SHORT = {"model_type": "lfm2", "num_hidden_layers": 4, "full_attn_idxs": [2]}
DELTA = "linear attention on whole heads"


@pytest.mark.parametrize(
    "sections, key, said",
    [
        ({"parallel": {"tp": 2, "world": 2}}, "parallel.tp", DELTA),
        ({"adapter": {"kind": "lora", "r": 8, "targets": ["q_proj", "conv1d"]}}, "adapter.targets", "a convolution"),
        ({"stack": {"kernels": ["liger"]}}, "stack.kernels", "fused kernels"),
        ({"stack": {"versions": {"transformers": "5.12.0"}}}, "model.model_type", "from Transformers 5.18 on"),
    ],
)
def test_refused(sections: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        estimate(plan_of(FIVE, **sections))
    assert any(one.path == key and said in f"{one.found} {one.allowed}" for one in found.value.problems)


@pytest.mark.parametrize(
    "sections, key, said",
    [
        ({"parallel": {"tp": 2, "world": 2}}, "parallel.tp", DELTA),
        ({"adapter": {"kind": "lora", "r": 8, "targets": ["in_proj", "conv"]}}, "adapter.targets", "a convolution"),
        ({"stack": {"kernels": ["liger"]}}, "stack.kernels", "fused kernels"),
        ({"stack": {"versions": {"transformers": "5.12.0"}}}, "model.model_type", "from Transformers 5.18 on"),
    ],
)
def test_short_convolutions_are_refused_likewise(sections: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(InputError) as found:
        estimate(plan_of(SHORT, **sections))
    assert any(one.path == key and said in f"{one.found} {one.allowed}" for one in found.value.problems)


def test_a_plain_run_is_estimated() -> None:
    assert estimate(plan_of(FIVE)).peak.allocated.expected > 0
    short = estimate(plan_of(SHORT))
    assert short.peak.allocated.expected > 0
    assert "convolutions are counted by Transformers' own" in str(short.notes)
