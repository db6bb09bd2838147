"""Model types whose layers normalise with LayerNorm: GPT-2 and its kin, OPT, NeoX, Phi, Falcon, the encoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.base.sources import Source
from trainledger.facts.model_type_row import ModelType, row


def _sizes(vocab: int, hidden: int, layers: int, heads: int) -> dict[str, Any]:
    """Vocabulary, hidden size, layers and heads, under their usual key names (elements and counts)."""
    return {"vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}


_GPT: dict[str, Any] = {
    "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "resid_pdrop": 0.1,
    "embd_pdrop": 0.1, "attn_pdrop": 0.1, "add_cross_attention": False, "tie_word_embeddings": True,
}  # fmt: skip
_TURNED: dict[str, Any] = {  # GPT-J's sizes, and its own keys
    "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False, "rotary_dim": 64,
    "activation_function": "gelu_new",
}  # fmt: skip
_ENCODER: dict[str, Any] = {
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512, "type_vocab_size": 2, "is_decoder": False, "add_cross_attention": False,
    "num_labels": 2, "tie_word_embeddings": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number that is written in a family's code, not in its config."""

    count: int
    source: Source


def _code(name: str, note: str) -> Source:
    return Source("Transformers model code", f"models/{name}/modeling_{name}.py: {note}", "5.24.0")


WIDENING = Fixed(4, _code("gpt2", "inner width over hidden size where n_inner is null"))
OPT_OFFSET = Fixed(2, _code("opt", "OPTLearnedPositionalEmbedding.offset, rows before the first position"))
FALCON_NORMS = Fixed(2, _code("falcon", "num_ln_in_parallel_attn of the new decoder architecture"))
CODEGEN_SHARDS = Fixed(4, _code("codegen", "CodeGenAttention.mp_num, parts of the fused projection"))
HALVED = Fixed(2, _code("modernbert", "sliding_window: half of local_attention, on either side"))
NEXT_SENTENCE = Fixed(2, _code("bert", "BertOnlyNSPHead, classes"))

ROWS: tuple[ModelType, ...] = (
    row("gpt2", "gpt2", **_GPT, activation_function="gelu_new", reorder_and_upcast_attn=False),
    row("gpt_bigcode", "gpt_bigcode", **_GPT, activation_function="gelu_pytorch_tanh", multi_query=True,
        attention_softmax_in_fp32=True),
    row("gpt_neox", "gpt_neox", **_sizes(50432, 6144, 44, 64), intermediate_size=24576, hidden_act="gelu",
        attention_dropout=0.0, hidden_dropout=0.0, tie_word_embeddings=False, use_parallel_residual=True,
        attention_bias=True, rotary_pct=0.25),
    row("opt", "opt", **_sizes(50272, 768, 12, 12), ffn_dim=3072, max_position_embeddings=2048,
        do_layer_norm_before=True, _remove_final_layer_norm=False, dropout=0.1, attention_dropout=0.0,
        activation_function="relu", layerdrop=0.0, enable_bias=True, layer_norm_elementwise_affine=True,
        tie_word_embeddings=True),
    row("phi", "phi", **_sizes(51200, 2048, 24, 32), intermediate_size=8192, resid_pdrop=0.0, embd_pdrop=0.0,
        attention_dropout=0.0, hidden_act="gelu_new", tie_word_embeddings=False, qk_layernorm=False,
        partial_rotary_factor=0.5),
    row("starcoder2", "starcoder2", **_sizes(49152, 3072, 30, 24), intermediate_size=12288, num_key_value_heads=2,
        hidden_act="gelu_pytorch_tanh", attention_dropout=0.0, residual_dropout=0.0, embedding_dropout=0.0,
        use_bias=True, tie_word_embeddings=True),
    row("falcon", "falcon", **_sizes(65024, 4544, 32, 71), hidden_dropout=0.0, attention_dropout=0.0, alibi=False,
        new_decoder_architecture=False, multi_query=True, parallel_attn=True, bias=False, activation="gelu",
        tie_word_embeddings=True),
    row("bloom", "bloom", vocab_size=250880, hidden_size=64, n_layer=2, n_head=8, hidden_dropout=0.0,
        attention_dropout=0.0, apply_residual_connection_post_layernorm=False, pretraining_tp=1, slow_but_exact=False,
        tie_word_embeddings=True),
    *(row(name, "gptj", **{**_GPT, **_TURNED}) for name in ("gptj", "codegen")),
    row("stablelm", "stablelm", **_sizes(50304, 2560, 32, 32), intermediate_size=6912, num_key_value_heads=32,
        hidden_act="silu", use_qkv_bias=False, qk_layernorm=False, use_parallel_residual=False, hidden_dropout=0.0,
        attention_dropout=0.0, tie_word_embeddings=False, partial_rotary_factor=0.25),
    row("persimmon", "stablelm", **_sizes(262144, 4096, 36, 64), intermediate_size=16384, hidden_act="relu2",
        qk_layernorm=True, hidden_dropout=0.0, attention_dropout=0.0, tie_word_embeddings=False,
        partial_rotary_factor=0.5),
    row("nemotron", "nemotron", **_sizes(256000, 6144, 32, 48), intermediate_size=24576, hidden_act="relu2",
        attention_bias=False, attention_dropout=0.0, mlp_bias=False, tie_word_embeddings=False,
        partial_rotary_factor=0.5),
    row("olmo", "nemotron", **_sizes(50304, 4096, 32, 32), intermediate_size=11008, hidden_act="silu",
        attention_bias=False, attention_dropout=0.0, tie_word_embeddings=False),
    row("mpt", "mpt", d_model=2048, n_heads=16, n_layers=24, max_seq_len=2048, vocab_size=50368,
        tie_word_embeddings=True),
    row("distilbert", "distilbert", vocab_size=30522, max_position_embeddings=512, sinusoidal_pos_embds=False,
        n_layers=6, n_heads=12, dim=768, hidden_dim=3072, dropout=0.1, attention_dropout=0.1, activation="gelu",
        seq_classif_dropout=0.2, num_labels=2, tie_word_embeddings=True),
    row("modernbert", "modernbert", **_sizes(50368, 768, 22, 12), intermediate_size=1152, hidden_activation="gelu",
        norm_bias=False, attention_bias=False, attention_dropout=0.0, local_attention=128, embedding_dropout=0.0,
        mlp_bias=False, mlp_dropout=0.0, decoder_bias=True, classifier_pooling="cls", classifier_dropout=0.0,
        classifier_bias=False, classifier_activation="gelu", global_attn_every_n_layers=3, num_labels=2,
        tie_word_embeddings=True),
    row("bert", "bert", **_sizes(30522, 768, 12, 12), **_ENCODER),
    row("roberta", "bert", **_sizes(50265, 768, 12, 12), **_ENCODER),
    row("xlm-roberta", "bert", "xlm_roberta", **_sizes(30522, 768, 12, 12), **_ENCODER),
    row("camembert", "bert", **_sizes(30522, 768, 12, 12), **_ENCODER),
    row("electra", "bert", **{**_sizes(30522, 256, 12, 4), **_ENCODER, "intermediate_size": 1024}, embedding_size=128),
)  # fmt: skip
