"""Regular expressions of parameter names as patterns of a plan, and back."""

from __future__ import annotations

import re

import pytest

from trainledger.importers.patterns import expression_of, globbed
from trainledger.model.names import fits

LAYERS = (1, 2, 12, 20, 29)
NAMES = [
    "model.embed_tokens.weight",
    *(f"model.layers.{at}.{name}.weight" for at in LAYERS for name in ("mlp.gate_proj", "self_attn.q_proj")),
    *(f"model.layers.{at}.input_layernorm.weight" for at in LAYERS),
    "model.norm.weight",
    "lm_head.weight",
]


def axolotl(expression: str) -> list[str]:
    """The names that Axolotl trains: a dot is a dot but before a plus, and a trailing range names rows."""
    text = re.sub(r"\[[0-9]*(:[0-9]*)?\]$", "", expression)
    return [name for name in NAMES if re.match(re.sub(r"\.(?!\+)", r"\\.", text), name)]


@pytest.mark.parametrize(
    ("expression", "patterns"),
    [
        ("^lm_head.weight$", ("lm_head.weight",)),
        ("lm_head.weight", ("lm_head.weight",)),
        ("model.embed_tokens", ("model.embed_tokens*",)),
        ("^model.embed_tokens.weight$[:32000]", ("model.embed_tokens.weight",)),
        ("model.layers.2", ("model.layers.2*",)),
        ("model.layers.2.", ("model.layers.2",)),
        ("model.layers.2[0-9]+.mlp", ("model.layers.2[0-9]*.mlp*",)),
        ("model.layers.(1|29).mlp", ("model.layers.1.mlp*", "model.layers.29.mlp*")),
        ("model.layers.(?:12|20).(mlp|self_attn).", (
            "model.layers.12.mlp", "model.layers.12.self_attn", "model.layers.20.mlp", "model.layers.20.self_attn",
        )),
        (".+.input_layernorm.", ("*.input_layernorm",)),
    ],
)  # fmt: skip
def test_an_expression_becomes_patterns_that_mean_the_same(expression: str, patterns: tuple[str, ...]) -> None:
    assert globbed(expression) == patterns
    assert [name for name in NAMES if fits(name, patterns)] == axolotl(expression)
    assert axolotl(expression)


@pytest.mark.parametrize(
    ("expression", "patterns"),
    [
        (r"model\.embed_tokens\.weight", ("model.embed_tokens.weight",)),
        (r"model.layers.\d+.self_attn.*", ("model.layers.[0-9]*.self_attn*",)),
        ("layers.(1|2)+.mlp", ()),
        ("(?!lm_head).+", ()),
        ("model.layers.2{2}", ()),
        ("[^a].mlp", ()),
        (".*", ()),
        ("", ()),
    ],
)
def test_what_a_pattern_cannot_say_is_none(expression: str, patterns: tuple[str, ...]) -> None:
    assert globbed(expression) == patterns


@pytest.mark.parametrize(
    "pattern", ["model.layers.2", "layers.2[0-9].mlp", "q_proj", "*norm*", "lm_head", "model.norm.weight", "layers.1*"]
)
def test_a_pattern_becomes_an_expression_that_means_the_same(pattern: str) -> None:
    expression = expression_of(pattern, ("model", "lm_head"))
    meant = [name for name in NAMES if fits(name, (pattern,))]
    assert axolotl(expression) == meant
    assert [name for name in NAMES if fits(name, globbed(expression))] == meant
    assert meant
