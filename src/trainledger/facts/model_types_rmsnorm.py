"""Decoders near Llama: RMS norms (or Cohere's own), rotary attention, gated feed-forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.base.sources import Source
from trainledger.facts.model_type_row import ModelType, row


def _sizes(vocab: int, hidden: int, ffn: int, layers: int, heads: int) -> dict[str, Any]:
    """The sizes that every decoder's config class states, under their key names (elements and counts)."""
    return {
        "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
        "num_attention_heads": heads, "attention_dropout": 0.0, "tie_word_embeddings": False,
    }  # fmt: skip


_SILU: dict[str, Any] = {"hidden_act": "silu", "attention_bias": False}
_QWEN: dict[str, Any] = {
    "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32,
}  # fmt: skip
_QWEN_VL = {
    **_sizes(152064, 8192, 29568, 80, 64), **_QWEN, "max_window_layers": 80, "num_key_value_heads": 8,
    "hidden_act": "silu",
}  # fmt: skip
_GEMMA: dict[str, Any] = {
    "head_dim": 256, "tie_word_embeddings": True, "attention_bias": False, "use_bidirectional_attention": False,
}  # fmt: skip
_GEMMA_2_3 = {
    **_sizes(256000, 2304, 9216, 26, 8), **_GEMMA, "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
}  # fmt: skip
_COHERE = {**_sizes(256000, 8192, 22528, 40, 64), **_SILU, "tie_word_embeddings": True}
_GLM = {
    **_sizes(151552, 4096, 13696, 40, 32), "num_key_value_heads": 2, "head_dim": 128, "hidden_act": "silu",
    "attention_bias": True, "partial_rotary_factor": 0.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Share:
    """A share that is written in a family's code: `parts` of `of`."""

    parts: int
    of: int
    source: Source


LFM2_WIDTH = Share(2, 3, Source("Transformers model code", "models/lfm2/modeling_lfm2.py: Lfm2MLP", "5.24.0"))

ROWS: tuple[ModelType, ...] = (
    row("internlm3", "llama", **_sizes(128512, 4096, 10240, 48, 32), **_SILU, num_key_value_heads=2, head_dim=128,
        mlp_bias=False),
    row("exaone", "llama", **_sizes(102400, 4096, 14336, 32, 32), **_SILU, num_key_value_heads=8, mlp_bias=False),
    row("arcee", "llama", **_sizes(32000, 2560, 18432, 32, 32), hidden_act="relu2", attention_bias=False,
        mlp_bias=False),
    row("mistral", "mistral", **_sizes(32000, 4096, 14336, 32, 32), num_key_value_heads=8, hidden_act="silu",
        sliding_window=4096),
    row("ministral", "mistral", **_sizes(32000, 4096, 14336, 32, 32), num_key_value_heads=8, hidden_act="silu",
        sliding_window=4096),
    row("ministral3", "mistral", **_sizes(131072, 4096, 14336, 34, 32), num_key_value_heads=8, head_dim=128,
        hidden_act="silu"),
    row("seed_oss", "seed_oss", **{**_sizes(155136, 4096, 27648, 64, 80), "attention_dropout": 0.1},
        num_key_value_heads=8, head_dim=128, hidden_act="silu", attention_bias=True, attention_out_bias=False,
        residual_dropout=0.1, mlp_bias=False),
    row("hunyuan_v1_dense", "hunyuan", **_sizes(290943, 4096, 11008, 32, 32), **_SILU),
    row("ernie4_5", "ernie", **{**_sizes(103424, 1024, 3072, 18, 16), "tie_word_embeddings": True},
        num_key_value_heads=2, head_dim=128, hidden_act="silu", use_bias=False),
    row("qwen2", "qwen", **_sizes(151936, 4096, 22016, 32, 32), **_QWEN, hidden_act="silu"),
    row("qwen3", "qwen", **_sizes(151936, 4096, 22016, 32, 32), **_QWEN, **_SILU, head_dim=128),
    *(
        row(name, "qwen", name.removesuffix("_text"), **_QWEN_VL)
        for name in ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
    ),
    row("qwen3_vl_text", "qwen", "qwen3_vl", **_sizes(151936, 4096, 22016, 32, 32), **_QWEN, **_SILU, head_dim=128),
    row("gemma", "gemma", **{**_sizes(256000, 3072, 24576, 28, 16), **_GEMMA}, num_key_value_heads=16,
        hidden_act="gelu_pytorch_tanh"),
    row("gemma2", "gemma", **_GEMMA_2_3, sliding_window_pattern=2,
        final_logit_softcapping=30.0, attn_logit_softcapping=50.0),
    row("gemma3_text", "gemma", "gemma3", **{**_GEMMA_2_3, "vocab_size": 262208}, sliding_window_pattern=6),
    row("gemma4_text", "gemma4", "gemma4", **{**_sizes(262144, 2304, 9216, 30, 8), "tie_word_embeddings": True},
        num_key_value_heads=4, head_dim=256, global_head_dim=512, attention_bias=False, sliding_window=512,
        sliding_window_pattern=6,
        hidden_activation="gelu_pytorch_tanh", vocab_size_per_layer_input=262144, hidden_size_per_layer_input=256,
        attention_k_eq_v=False, num_kv_shared_layers=0, enable_moe_block=False, use_double_wide_mlp=False),
    row("phi3", "phi3", **_sizes(32064, 3072, 8192, 32, 32), hidden_act="silu", resid_pdrop=0.0,
        partial_rotary_factor=1.0),
    row("olmo2", "olmo2", **_sizes(50304, 4096, 11008, 32, 32), **_SILU),
    row("olmo3", "olmo2", **_sizes(50304, 4096, 11008, 32, 32), **_SILU, sliding_window=4096,
        sliding_window_pattern=4),
    row("exaone4", "olmo2", **_sizes(102400, 4096, 16384, 32, 32), **_SILU, num_key_value_heads=32,
        sliding_window=4096, sliding_window_pattern=4),
    row("granite", "granite", **_sizes(32000, 4096, 11008, 32, 32), **_SILU, mlp_bias=False),
    row("apertus", "apertus", **_sizes(131072, 4096, 14336, 32, 32), hidden_act="xielu", attention_bias=False),
    row("lfm2", "lfm2", **{**_sizes(65536, 2560, 12288, 32, 32), "tie_word_embeddings": True}, num_key_value_heads=8,
        conv_bias=False, conv_L_cache=3, block_multiple_of=256, block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=True),
    row("cohere", "cohere", **_COHERE, use_qk_norm=False),
    row("cohere2", "cohere", **_COHERE, sliding_window=4096, sliding_window_pattern=4),
    row("glm", "glm", **_GLM),
    row("glm4", "glm", **_GLM),
    row("smollm3", "smollm3", **{**_sizes(128256, 2048, 11008, 36, 16), **_SILU, "tie_word_embeddings": True},
        num_key_value_heads=4, use_sliding_window=False, no_rope_layer_interval=4, mlp_bias=False),
)  # fmt: skip
