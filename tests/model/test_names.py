"""Patterns of module names: what they mean, and that many layers are asked the same as one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.model.names import Patterns, fits

PARTS = st.sampled_from(["model", "layers", "1", "11", "mlp", "up_proj", "weight", "l*", "[01]", "1?", "*"])
PATTERNS = st.lists(st.lists(PARTS, min_size=1, max_size=5).map(".".join), max_size=4)
INNER = ["mlp.up_proj.weight", "mlp.weight", "layers.1.mlp.weight", "up_proj"]


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("layers.1", "model.layers.1.mlp.up_proj.weight", True),
        ("layers.1", "model.layers.11.mlp.up_proj.weight", False),
        ("model.layers.1.*", "model.layers.1.mlp.up_proj.weight", True),
        ("*.layers.1.*", "model.layers.1.mlp.up_proj.weight", True),
        ("model.layers.1[0-2].mlp", "model.layers.11.mlp.up_proj.weight", True),
        ("model.layers.1[0-2].mlp", "model.layers.13.mlp.up_proj.weight", False),
        ("up_proj", "model.layers.1.mlp.gate_up_proj.weight", False),
        ("*up_proj", "model.layers.1.mlp.gate_up_proj.weight", True),
        ("lm_head.*", "lm_head", True),
        ("*", "lm_head.weight", True),
    ],
)
def test_a_pattern_is_whole_parts_of_a_name(pattern: str, name: str, meant: bool) -> None:
    assert fits(name, (pattern,)) is meant


@given(PATTERNS, st.sampled_from(["model.layers.1", "model.layers.11", "layers.0", "h.1"]))
def test_a_layer_is_asked_at_once(patterns: list[str], path: str) -> None:
    asked = Patterns(patterns)
    assert asked.below(path, INNER, asked.inner(INNER)) == tuple(fits(f"{path}.{name}", patterns) for name in INNER)
