"""Total, active and trainable parameters against published counts."""

from __future__ import annotations

import pytest

from trainledger.facts.catalogue import find_model
from trainledger.model import counts
from trainledger.model.build import build
from trainledger.model.chosen import chosen
from trainledger.model.program import Model

SMALL = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 12, "num_attention_heads": 2,
    "vocab_size": 10,
}  # fmt: skip
LAYER = 4 * 8 * 8 + 3 * 8 * 16 + 2 * 8


def named(name: str) -> Model:
    return build(find_model(name).keys())


@pytest.mark.parametrize(
    ("name", "billions", "digits"),
    [
        ("mixtral-8x7b", 12.9, 1),  # Mixtral of Experts, arXiv:2401.04088, section 1: 13B active (12.9 in its release)
        ("mixtral-8x22b", 39, 0),  # Mistral AI, Cheaper, Better, Faster, Stronger (2024-04): 39B active of 141B
        ("qwen1.5-moe-a2.7b", 2.7, 1),  # the name
        ("qwen2-57b-a14b", 14, 0),  # the name
        ("qwen3-30b-a3b", 3.4, 1),  # model card: 3.3B activated of 30.5B
        ("qwen3-235b-a22b", 22, 0),  # the name
        ("qwen3-coder-480b-a35b", 35, 0),  # the name
        ("qwen3-next-80b-a3b", 3.9, 1),  # the name's 3 without the embedding's and the head's 0.6
        ("olmoe-1b-7b", 1.3, 1),  # OLMoE, arXiv:2409.02060, table 1: 1.3B active of 6.9B
        ("deepseek-v2", 21, 0),  # DeepSeek-V2, arXiv:2405.04434: 21B activated of 236B
        ("deepseek-v2-lite", 2.7, 1),  # the same, appendix B: 2.4B without embeddings' 0.2
        ("deepseek-v3", 38, 0),  # DeepSeek-V3, arXiv:2412.19437: 37B activated of 671B, one embedding table fewer
        ("kimi-k2", 33, 0),  # Kimi K2, arXiv:2507.20534: 32.6B activated of 1.04T
        ("llama-4-scout-text", 17, 0),  # the name
        ("llama-4-maverick-text", 17, 0),  # the name
        ("gpt-oss-120b", 5.7, 1),  # gpt-oss, arXiv:2508.10925, table 1: 5.13B without the embedding's 0.58
        ("gpt-oss-20b", 4.2, 1),  # the same: 3.61B without the embedding's 0.58
    ],
)
def test_active_parameters(name: str, billions: float, digits: int) -> None:
    assert round(counts.active(named(name)) / 1e9, digits) == billions


def test_published_active_counts_of_gpt_oss() -> None:
    """arXiv:2508.10925, table 1: attention, MLP and head, without the embedding."""
    for name, billions in (("gpt-oss-120b", 5.13), ("gpt-oss-20b", 3.61)):
        model = named(name)
        assert round((counts.active(model) - model.embeddings[0].elements) / 1e9, 2) == billions


def test_further_tokens_complete_the_published_checkpoint() -> None:
    """DeepSeek-V3's weights index: 684,489,845,504, with copies of embedding and head, and the routers' corrections."""
    model = named("deepseek-v3")
    copies = 2 * model.embeddings[0].elements
    corrections = sum(buffer.elements for buffer in model.buffers) + 256
    assert counts.total(model) + counts.further(model) + copies + corrections == 684489845504
    assert [block.layers for block in model.further] == [(61,)]
    assert counts.further(named("kimi-k2")) == 0


def test_trainable() -> None:
    model = build(SMALL)
    assert counts.trainable(model) == counts.total(model) == 12 * LAYER + 2 * 80 + 8


@pytest.mark.parametrize(
    ("patterns", "elements"),
    [
        (["lm_head"], 80),
        (["layers.1"], LAYER),
        (["layers.1", "layers.1.mlp", "layers.11"], 2 * LAYER),
        (["layers.1[01].*"], 2 * LAYER),
        (["self_attn.*_proj"], 12 * 4 * 64),
        (["q_proj"], 12 * 64),
        (["mlp.*"], 12 * 3 * 128),
        (["*"], 12 * LAYER + 2 * 80 + 8),
    ],
)
def test_part_of_a_model_is_trained(patterns: list[str], elements: int) -> None:
    assert counts.trainable(chosen(build(SMALL), patterns)) == elements


def test_a_tied_head_is_its_embedding() -> None:
    model = build({**SMALL, "tie_word_embeddings": True})
    assert counts.total(model) == 12 * LAYER + 80 + 8
    for name in ("lm_head", "embed_tokens"):
        assert counts.trainable(chosen(model, [name])) == 80


def test_by_block() -> None:
    model = named("deepseek-v3")
    assert [(part.name, part.layers) for part in counts.by_block(model)] == [
        ("embeddings", 1), ("model.layers", 3), ("model.layers", 58), ("head", 1),
    ]  # fmt: skip
