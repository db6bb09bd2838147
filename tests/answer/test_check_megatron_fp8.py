"""What plans with 8-bit products are refused for under Megatron-Core, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_fp8 import eight
from trainledger.answer.check import check
from trainledger.base.problems import InputError


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("precision.compute", {"precision": {"weights": "fp8", "compute": "bf16"}}),
        ("precision.compute", {"stack": {"kernels": []}}),
        ("precision.fp8.recipe", {"precision": {"fp8": {"recipe": "rowwise"}}}),
        (
            "stack.options.first_last_layers_bf16",
            {"precision": {"fp8": {"recipe": "delayed"}}, "stack": {"options": {"first_last_layers_bf16": True}}},
        ),
        (
            "stack.recompute.modules",
            {
                "precision": {"fp8": {"recipe": "delayed"}},
                "stack": {"recompute": {"kind": "selective", "modules": ["layernorm"]}},
            },
        ),
    ],
)
def test_refused_by_name(key: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        check(eight(**sections))
    assert key in [one.path for one in found.value.problems]


@pytest.mark.parametrize("recipe", ["delayed", "tensorwise", "blockwise", "mxfp8"])
def test_known_recipes_pass(recipe: str) -> None:
    check(eight(precision={"fp8": {"recipe": recipe}}))
