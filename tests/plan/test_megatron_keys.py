"""Hugging Face models under Megatron-Core: the same weights, and what cannot be built is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.check import check
from trainledger.base.problems import InputError
from trainledger.facts.catalogue import every_entry
from trainledger.facts.megatron_keys import TYPES
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.plan_file import draft_of
from trainledger.model.build import build, model_of
from trainledger.model.counts import active, storages, total

ENTRIES = [entry for entry in every_entry() if entry.keys()["model_type"] in TYPES]
UNPADDED = {"make_vocab_size_divisible_by": 1}
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 768, "vocab_size": 1000,
}  # fmt: skip


def draft(model: Any, tp: int = 1, framework: str = "megatron", **options: Any) -> Draft:
    return draft_of(
        Document(
            {
                "model": model, "batch": {"micro_batch": 1, "sequence": 128}, "parallel": {"tp": tp},
                "stack": {"framework": framework, "options": options},
            },
            {},
        )
    )  # fmt: skip


def problems(model: Any, **more: Any) -> list[str]:
    with pytest.raises(InputError) as found:
        check(draft(model, **more).plan)
    return [str(one) for one in found.value.problems]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_catalogue_model_has_as_many_parameters(entry: Any) -> None:
    """Those of its Hugging Face class, and where a count was published, that one; without layers for further tokens,
    which Transformers does not build."""
    further = {key: 0 for key in ("num_nextn_predict_layers",) if key in entry.keys()}  # noqa: SIM118
    plan = draft({**entry.keys(), **further}, **UNPADDED).plan
    assert plan.keys()["model_type"] == "megatron-gpt"
    made, own = model_of(plan), build(entry.keys())
    assert (total(made), active(made)) == (total(own), active(own))
    if entry.parameters is not None:
        assert total(made) == entry.parameters


def test_a_layer_for_a_further_token_is_built() -> None:
    """Two norms and a projection of two widths to one, a layer of experts and a norm: DeepSeek-V3's own count of its
    checkpoint, 685 billion, has two copies of the vocabulary's weights besides."""
    keys = next(entry.keys() for entry in ENTRIES if entry.name == "deepseek-v3")
    with_it, without = (model_of(draft({**keys, "num_nextn_predict_layers": n}, **UNPADDED).plan) for n in (1, 0))
    width, vocabulary = keys["hidden_size"], keys["vocab_size"]
    layer = next(block for block in without.blocks if 60 in block.layers)
    own = sum(weight.elements for weight in layer.weights)
    assert total(with_it) - total(without) == own + 3 * width + 2 * width * width
    assert round((total(with_it) + 2 * width * vocabulary) / 1e9, 1) == 684.5


def test_every_mapped_type_is_in_the_catalogue() -> None:
    named = {entry.keys()["model_type"] for entry in ENTRIES}
    assert set(TYPES) - named == {"kimi_k2"}  # whose entry has the architecture's own name, deepseek_v3


def test_biases_of_queries_keys_and_values_alone() -> None:
    names = {weight.name for _, weight in storages(model_of(draft({**LLAMA, "model_type": "qwen2"}).plan))}
    assert {name for name in names if name.endswith(".bias")} == {"self_attention.linear_qkv.bias"}


@pytest.mark.parametrize(
    ("framework", "tp", "options", "size"),
    [
        ("megatron", 1, {}, 1024),
        ("megatron", 4, {}, 1024),
        ("megatron", 16, {}, 2048),
        ("nemo", 2, {}, 1024),
        ("megatron", 2, {"make_vocab_size_divisible_by": 10}, 1000),
        ("megatron-bridge", 2, {}, 1000),
    ],
)
def test_the_vocabulary_is_padded(framework: str, tp: int, options: dict[str, Any], size: int) -> None:
    found = draft(LLAMA, tp, framework, **options)
    assert found.plan.keys()["vocab_size"] == size
    listed = {one.path: one.value for one in found.defaulted}
    assert listed.get("model.vocab_size", 1000) == size


def test_a_vocabulary_that_cannot_be_spread_is_refused() -> None:
    (found,) = problems(LLAMA, tp=16, framework="megatron-bridge")[-1:]
    assert found.startswith("model.vocab_size: 1000 is no multiple of tp 16")
    assert found.endswith("The nearest that can is 2048.")


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"model_type": "gpt_neox"}, "model.model_type"),
        ({"model_type": "lama"}, "model.model_type"),
        ({"attention_bias": True}, "model.attention_bias"),
        ({"mlp_bias": True}, "model.mlp_bias"),
        ({"hidden_act": "gelu"}, "model.hidden_act"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": [1]}, "model.mlp_only_layers"),
        ({"model_type": "qwen3_moe", "decoder_sparse_step": 2}, "model.decoder_sparse_step"),
    ],
)
def test_what_megatron_does_not_build_is_refused(changes: dict[str, Any], path: str) -> None:
    assert any(found.startswith(f"{path}: ") for found in problems({**LLAMA, **changes}))


def test_an_unmapped_type_names_those_that_are() -> None:
    (found,) = problems({**LLAMA, "model_type": "gemma2"})
    assert all(name in found for name in TYPES)


def test_experts_and_latents_keep_their_shapes() -> None:
    keys = draft("deepseek-v2-lite").plan.keys()
    assert keys["num_experts"] == 64
    assert keys["shared_expert_intermediate_size"] == 2 * 1408
    assert keys["first_k_dense_replace"] == 1
    assert keys["q_lora_rank"] is None


def test_gpt2_is_what_the_arguments_default_to() -> None:
    keys = draft("gpt2").plan.keys()
    assert (keys["hidden_size"], keys["intermediate_size"], keys["max_position_embeddings"]) == (768, 3072, 1024)
    assert (keys["position_embedding_type"], keys["normalization"]) == ("learned_absolute", "LayerNorm")


def test_other_frameworks_keep_the_keys() -> None:
    assert draft(LLAMA, framework="transformers").plan.keys() == LLAMA
