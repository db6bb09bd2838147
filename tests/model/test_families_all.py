"""Every catalogue entry builds, and has exactly the parameters it is known to have."""

from __future__ import annotations

import pytest

from trainledger.facts.catalogue import Entry, every_entry
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.model import counts
from trainledger.model.build import build

# Counts of Transformers' own classes on the meta device (5.24.0), where no exact count is published.
COUNTED = {
    "deepseek-llm-67b": 67425001472, "opt-66b": 65719701504, "starcoderbase-3b": 3043311104,
    "starcoderbase-7b": 7327263232, "granite-20b-code": 20066993152, "granite-34b-code": 33715603456,
    "starcoder2-7b": 7173923840, "glm-4-32b-0414": 32566081536, "powerlm-3b": 3510819072,
    "bert-large-cased": 333610308, "gemma-4-31b-text": 30697345280, "gemma-4-26b-a4b-text": 25233141760,
    "qwen3-next-80b-a3b": 79674391296, "mpt-30b": 29957200896,
    "codegen-350m": 356712448, "codegen-2b": 2779356160, "codegen-6b": 7064213504, "codegen-16b": 16032155648,
    "persimmon-8b": 9397175296, "minitron-4b": 4190509056, "nemotron-4-340b": 341029195776,
}  # fmt: skip


@pytest.mark.parametrize("entry", every_entry(), ids=lambda entry: entry.name)
def test_total(entry: Entry) -> None:
    expected = entry.parameters if entry.parameters is not None else COUNTED[entry.name]
    assert counts.total(build(entry.keys())) == expected


def test_every_type_of_the_catalogue_is_known() -> None:
    assert {str(entry.keys()["model_type"]) for entry in every_entry()} <= set(MODEL_TYPES)


@pytest.mark.parametrize("entry", every_entry(), ids=lambda entry: entry.name)
def test_what_is_active_and_what_is_walked(entry: Entry) -> None:
    model = build(entry.keys())
    routed = any(block.top_k for block in model.blocks)
    assert (counts.active(model) < counts.total(model)) is routed
    assert all(bool(block.ops) is not bool(block.unknown) for block in model.blocks)
    assert sum(weight.elements for _, weight in counts.storages(model)) == counts.total(model)
    assert sum(part.total for part in counts.by_block(model)) == counts.total(model)
    assert sorted(at for block in model.blocks for at in block.layers) == list(
        range(sum(b.count for b in model.blocks))
    )


SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size")
NEEDED = {  # what has no default
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"num_experts_per_tok": 2, "n_routed_experts": 8},
    "lfm2_moe": {"layer_types": ["conv"] * 32},
    "glm4_moe": {"head_dim": 128},  # the class rounds what does not divide down
    "megatron-gpt": dict.fromkeys((*SIZES, "max_position_embeddings"), 16),
}


@pytest.mark.parametrize("kind", sorted(MODEL_TYPES))
def test_config_class_defaults_build(kind: str) -> None:
    """A model type with nothing but its config class's defaults."""
    needed = NEEDED.get(kind, {})
    assert counts.total(build({"model_type": kind, **needed})) > 0
