"""Regular expressions of parameter names as patterns of a plan."""

from __future__ import annotations

import pytest

from trainledger.importers.patterns import globbed


@pytest.mark.parametrize(
    "expression, pattern",
    [
        ("^lm_head.weight$", "lm_head.weight"),
        (r"model\.embed_tokens", "model.embed_tokens"),
        ("model.layers.2[0-9]+.mlp", "model.layers.2*.mlp"),
        (r"layers\.\d+\.self_attn.*", "layers.*.self_attn*"),
        ("layers.(1|2).mlp", ""),
        ("^model.embed_tokens.weight$[:32000]", ""),
        (".*", ""),
        ("", ""),
    ],
)
def test_an_expression_becomes_a_pattern_or_nothing(expression: str, pattern: str) -> None:
    assert globbed(expression) == pattern
