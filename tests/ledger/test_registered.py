"""Parameters in the order in which a model registers them."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.ledger.registered import slots_of
from trainledger.model.build import build

SMALL: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip
PADDED = {**SMALL, "pad_token_id": 0}
HEADED = {**PADDED, "head_dim": 8}
ROUTED = {
    **HEADED, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 1,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64}
BERT = {key: size for key, size in SMALL.items() if key != "num_key_value_heads"}
UNTIED = {**BERT, "tie_word_embeddings": False}
CASES: dict[str, dict[str, Any]] = {
    "llama": SMALL, "mistral": SMALL, "qwen2": SMALL, "qwen3": {**SMALL, "head_dim": 8}, "gemma": SMALL,
    "gemma2": SMALL, "gemma3_text": SMALL, "cohere": SMALL, "olmo2": SMALL, "glm4": PADDED, "granite": SMALL,
    "smollm3": PADDED, "starcoder2": SMALL, "phi": SMALL, "phi3": PADDED, "gpt2": GPT,
    "gpt_bigcode": GPT, "bert": BERT, "roberta": BERT, "xlm-roberta": UNTIED, "camembert": UNTIED,
    "electra": {**UNTIED, "embedding_size": 24},
    "arcee": SMALL, "internlm3": SMALL,
    "ministral": HEADED, "ministral3": HEADED, "seed_oss": HEADED, "hunyuan_v1_dense": HEADED, "ernie4_5": HEADED,
    "olmo3": PADDED, "exaone4": HEADED, "glm4_moe": {**ROUTED, "use_qk_norm": True}, "dots1": ROUTED,
    "solar_open": ROUTED, "minimax_m2": {**HEADED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "apertus": HEADED, "lfm2": {**SMALL, "full_attn_idxs": [1]}, "exaone": SMALL,
    "lfm2_moe": {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
                 "num_dense_layers": 1, "layer_types": ["full_attention", "conv"]},
    "granitemoe": {**SMALL, "num_local_experts": 4},
    "granitemoeshared": {**SMALL, "num_local_experts": 4, "shared_intermediate_size": 40},
    "llama4_text": {**HEADED, "intermediate_size_mlp": 40, "num_local_experts": 4, "moe_layers": [0]},
    "gemma4_text": {**HEADED, "global_head_dim": 12, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2,
                    "moe_intermediate_size": 12, "hidden_size_per_layer_input": 0,
                    "layer_types": ["sliding_attention", "full_attention"]},
    "gpt_neox": {key: size for key, size in SMALL.items() if key != "num_key_value_heads"},
    "mixtral": {**SMALL, "num_local_experts": 4},
    "qwen2_moe": {**SMALL, "num_experts": 6, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20},
    "opt": {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
            "word_embed_proj_dim": 32},
}  # fmt: skip


def test_a_layer_of_llama_ends_with_its_norms() -> None:
    names = [slot.weight.name for slot in slots_of(build({"model_type": "llama", **SMALL})) if slot.at == 1]
    assert names[0] == "self_attn.q_proj.weight"
    assert names[-2:] == ["input_layernorm.weight", "post_attention_layernorm.weight"]


def test_what_is_shared_is_counted_once() -> None:
    slots = slots_of(build({"model_type": "llama", **SMALL, "tie_word_embeddings": True}))
    assert [slot.name for slot in slots if slot.at == 0] == ["model.embed_tokens.weight"]
    assert all(slot.weight.name != "lm_head.weight" for slot in slots)


@pytest.mark.parametrize("kind", CASES)
def test_the_order_is_that_of_the_real_class(kind: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **CASES[kind])
    masked = kind in ("bert", "roberta", "xlm-roberta", "camembert", "electra")
    maker = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        real = maker.from_config(config)
    found = [slot.name.replace("*", str(slot.at - 1)) for slot in slots_of(build({"model_type": kind, **CASES[kind]}))]
    assert found == [name for name, _ in real.named_parameters()]
