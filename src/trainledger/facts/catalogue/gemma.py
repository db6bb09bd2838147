"""Google's Gemma 1 to 4. Of Gemma 3's 4B, 12B and 27B and of Gemma 4 the text model alone, without the towers."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.catalogue.entry import WIDE, Entry, Keys, row, shape

_GEMMA: Keys = {
    "model_type": "gemma", "vocab_size": 256000, "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": True,
    "head_dim": 256, "attention_bias": False,
}  # fmt: skip
_GEMMA2: Keys = {
    **_GEMMA, **WIDE, "model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
}  # fmt: skip
_GEMMA3: Keys = {
    "model_type": "gemma3_text", "vocab_size": 262144, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True, "head_dim": 256, "attention_bias": False, "sliding_window": 512,
    "sliding_window_pattern": 6, "attn_logit_softcapping": None, "final_logit_softcapping": None,
}  # fmt: skip
_VISION3: Keys = {**_GEMMA3, "vocab_size": 262208, "sliding_window": 1024}
_LAYERS4 = (*("sliding_attention",) * 5, "full_attention")
_GEMMA4: Keys = {
    "model_type": "gemma4_text", "vocab_size": 262144, "hidden_activation": "gelu_pytorch_tanh", "head_dim": 256,
    "global_head_dim": 512, "tie_word_embeddings": True, "attention_bias": False, "sliding_window": 1024,
    "final_logit_softcapping": 30.0, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0, "use_bidirectional_attention": "vision",
}  # fmt: skip


def _fourth(name: str, hub_id: str, config: Keys) -> Entry:
    """One of Gemma 4's: the class that Transformers' own conversion of its weights builds."""
    where = f"src/transformers/models/gemma4/convert_gemma4_weights.py, _VARIANTS: {hub_id}"
    source = Source("Transformers conversion of Gemma 4", where, "2026-04")
    return Entry(name, hub_id, tuple({**_GEMMA4, **config}.items()), None, source)


ENTRIES: tuple[Entry, ...] = (
    row("gemma-2b", "google/gemma-2b", "2024-02", 2506172416, {**_GEMMA, **shape(2048, 18, 8, 1, 16384)}),
    row("gemma-7b", "google/gemma-7b", "2024-02", 8537680896, {**_GEMMA, **shape(3072, 28, 16, 16, 24576)}),
    row("gemma-2-2b", "google/gemma-2-2b", "2024-07", 2614341888, {**_GEMMA2, **shape(2304, 26, 8, 4, 9216)}),
    row("gemma-2-9b", "google/gemma-2-9b", "2024-06", 9241705984, {**_GEMMA2, **shape(3584, 42, 16, 8, 14336)}),
    row("gemma-2-27b", "google/gemma-2-27b", "2024-06", 27227128320,
        {**_GEMMA2, **shape(4608, 46, 32, 16, 36864), "head_dim": 128}),
    row("gemma-3-270m", "google/gemma-3-270m", "2025-08", 268098176, {**_GEMMA3, **shape(640, 18, 4, 1, 2048)}),
    row("gemma-3-1b", "google/gemma-3-1b-pt", "2025-03", 999885952, {**_GEMMA3, **shape(1152, 26, 4, 1, 6912)}),
    row("gemma-3-4b-text", "google/gemma-3-4b-pt", "2025-03", 3880263168, {**_VISION3, **shape(2560, 34, 8, 4, 10240)}),
    row("gemma-3-12b-text", "google/gemma-3-12b-pt", "2025-03", 11766034176,
        {**_VISION3, **shape(3840, 48, 16, 8, 15360)}),
    row("gemma-3-27b-text", "google/gemma-3-27b-pt", "2025-03", 27009346304,
        {**_VISION3, **shape(5376, 62, 32, 16, 21504), "head_dim": 128}),
    _fourth("gemma-4-31b-text", "google/gemma-4-31B",
            {**shape(5376, 60, 32, 16, 21504), "num_global_key_value_heads": 4, "layer_types": _LAYERS4 * 10}),
    _fourth("gemma-4-26b-a4b-text", "google/gemma-4-26B-A4B",
            {**shape(2816, 30, 16, 8, 2112), "num_global_key_value_heads": 2, "layer_types": _LAYERS4 * 5,
             "enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}),
)  # fmt: skip
