"""The sizes of a model that degrees must divide."""

from __future__ import annotations

from trainledger.model.sizes import Sizes, sizes_of


def test_a_dense_model_with_its_types_defaults() -> None:
    assert sizes_of({"model_type": "llama", "num_key_value_heads": 8}) == Sizes(32, 32, 8, 11008, None, None, None, 0)


def test_other_names_of_the_same_counts() -> None:
    keys = {"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_inner": 4096}
    assert sizes_of(keys) == Sizes(24, 16, 16, 4096, None, None, None, 0)


def test_experts_and_the_dense_layers_before_them() -> None:
    moe = {
        "model_type": "new", "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 4,
        "intermediate_size": 10944, "num_experts": 64, "moe_intermediate_size": 1408, "n_shared_experts": 2,
        "num_nextn_predict_layers": 1,
    }  # fmt: skip
    assert sizes_of(moe) == Sizes(27, 16, 4, None, 64, 1408, 2816, 1)
    assert sizes_of({**moe, "first_k_dense_replace": 1}).ffn == 10944
    assert sizes_of({**moe, "kv_lora_rank": 512}).kv_heads == 16  # latent attention has a key for every head
    assert sizes_of({**moe, "shared_expert_intermediate_size": 512}).shared_ffn == 512


def test_what_is_no_count_is_left_out() -> None:
    assert sizes_of({"num_hidden_layers": "many", "num_attention_heads": True}) == Sizes(
        None, None, None, None, None, None, None, 0
    )
