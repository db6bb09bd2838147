"""Whole runs of a small model of each of the newer types: the largest instant of every phase, against the real code."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.witness.steps import both_phases

BASE = {
    "hidden_size": 256, "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "head_dim": 96, "pad_token_id": None,
}  # fmt: skip
WIDE = {**BASE, "intermediate_size": 640}
SHORT = {key: size for key, size in WIDE.items() if key != "head_dim"}
EQUAL = {**WIDE, "num_hidden_layers": 4}  # a first, a last, and two between that are the same
ROUTED = {
    **WIDE, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 96,
    "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
GEMMA4 = {
    **WIDE, "global_head_dim": 128, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "sliding_window": 64,
    "hidden_size_per_layer_input": 0, "layer_types": [*["sliding_attention"] * 3, "full_attention", "full_attention"],
}  # fmt: skip
MIXED = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 96}
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 48,
}  # fmt: skip
SHARED = {
    **DELTA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
    "shared_expert_intermediate_size": 128,
}  # fmt: skip
GRANITE = {**BASE, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2}
TYPES: dict[str, dict[str, Any]] = {
    "granitemoeshared": {**GRANITE, "shared_intermediate_size": 160},
    "qwen3_next": {**WIDE, **SHARED}, "qwen3_5_text": {**WIDE, **DELTA}, "qwen3_5_moe_text": {**BASE, **SHARED},
    "lfm2_moe": {**SHORT, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
                 "num_dense_layers": 2, "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]},
    "lfm2": {**SHORT, "full_attn_idxs": [2, 4], "block_multiple_of": 32}, "apertus": EQUAL,
    "arcee": EQUAL, "internlm3": EQUAL,
    "ministral": EQUAL, "ministral3": EQUAL, "seed_oss": EQUAL, "hunyuan_v1_dense": EQUAL, "ernie4_5": EQUAL,
    "olmo3": {**WIDE, "sliding_window": 64}, "exaone4": {**WIDE, "sliding_window": 64}, "glm4_moe": ROUTED,
    "dots1": ROUTED, "solar_open": ROUTED,
    "minimax_m2": {**BASE, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 48},
    "llama4_text": {**BASE, "intermediate_size": 192, "intermediate_size_mlp": 640, "num_local_experts": 4,
                    "attention_chunk_size": 128, "interleave_moe_layer_step": 2},
    "gemma4_text": GEMMA4, "gemma4_text, routed": {**GEMMA4, "model_type": "gemma4_text", **MIXED},
}  # fmt: skip
NAMED = ["q_proj", "v_proj", "o_proj"]  # of types whose experts or router all-linear would reach
KBIT = {"weights": "bf16", "compute": "bf16", "autocast": False, "norms": "fp32", "gradients": "fp32"}
PURE = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"}
AUTOCAST = {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"}
# attention, recompute, precision, whether an adapter is trained
STACKS = [
    ("sdpa", "none", PURE, False), ("sdpa", "full", PURE, False), ("eager", "none", PURE, False),
    ("eager", "full", AUTOCAST, False), ("sdpa", "full", {**PURE, "gradients": "fp32"}, True),
    ("eager", "none", AUTOCAST, True),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stack", range(len(STACKS)))
@pytest.mark.parametrize("kind", TYPES)
def test_phases_agree(kind: str, stack: int) -> None:
    """To the byte, as the allocator gives blocks."""
    compared(kind, *STACKS[stack])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "autocast"), [("qwen3_5_text", False), ("lfm2", True)])
def test_taps_and_decays_go_with_norms(kind: str, autocast: bool) -> None:
    """Preparing a quantised model casts all that is not packed to fp32, convolutions over time too."""
    compared(kind, "sdpa", "none", {**KBIT, "autocast": autocast}, True)


def compared(kind: str, attention: str, recompute: str, precision: dict[str, Any], adapted: bool) -> None:
    routed = any("expert" in key for key in TYPES[kind])
    lora = {"kind": "lora", "r": 16, "dtype": "fp32", "targets": NAMED if routed else "all-linear"}
    ours, real = both_phases(
        {"model_type": kind, **TYPES[kind]},
        recompute,
        attention,
        sequence=256,
        precision=precision,
        **({"adapter": lora} if adapted else {}),
    )
    assert ours == real
