"""What LitGPT's plans are refused for, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.base.problems import InputError

LORA = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}
STACK = {"framework": "litgpt", "loss": "chunked", "versions": {}}


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("parallel.strategy", {"parallel": {"strategy": "fsdp2", "world": 2}}),
        ("stack.loss", {"stack": {**STACK, "loss": "full"}}),
        ("stack.compile", {"stack": {**STACK, "compile": True}}),
        ("stack.kernels", {"stack": {**STACK, "kernels": ["liger"]}}),
        ("quantization.kind", {"quantization": {"kind": "int8"}}),
        ("adapter.kind", {"adapter": {**LORA, "kind": "dora"}}),
        ("adapter.options.bias", {"adapter": {**LORA, "options": {"bias": "all"}}}),
        ("adapter.train_extra", {"adapter": {**LORA, "train_extra": ["lm_head"]}}),
        ("adapter.targets", {"adapter": {**LORA, "targets": ["c_attn"]}}),
    ],
)
def test_refused_by_name(key: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        check(plan_of(**{"adapter": LORA, "stack": STACK, **sections}))
    assert key in [one.path for one in found.value.problems]


def test_what_is_known_passes() -> None:
    check(plan_of(adapter=LORA, stack=STACK, quantization={"kind": "nf4"}))
