"""BERT, RoBERTa and ModernBERT with their masked-language heads."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import WIDE, Entry, Keys, row

_BERT: Keys = {
    **WIDE, "model_type": "bert", "architectures": ("BertForMaskedLM",), "vocab_size": 30522,
    "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu", "tie_word_embeddings": True,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
}  # fmt: skip
_CASED: Keys = {**_BERT, "vocab_size": 28996}
_ROBERTA: Keys = {
    **_BERT, "model_type": "roberta", "architectures": ("RobertaForMaskedLM",), "vocab_size": 50265,
    "max_position_embeddings": 514, "type_vocab_size": 1,
}  # fmt: skip
_BASE: Keys = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_LARGE: Keys = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_MODERN: Keys = {
    **WIDE, "model_type": "modernbert", "architectures": ("ModernBertForMaskedLM",), "vocab_size": 50368,
    "tie_word_embeddings": True, "local_attention": 128, "global_attn_every_n_layers": 3, "norm_bias": False,
    "decoder_bias": True, "max_position_embeddings": 8192,
}  # fmt: skip

ENTRIES: tuple[Entry, ...] = (
    row("bert-base-uncased", "google-bert/bert-base-uncased", "2018-10", 109514298, {**_BERT, **_BASE}),
    row("bert-base-cased", "google-bert/bert-base-cased", "2018-10", 108340804, {**_CASED, **_BASE}),
    row("bert-large-uncased", "google-bert/bert-large-uncased", "2018-10", 335174458, {**_BERT, **_LARGE}),
    row("bert-large-cased", "google-bert/bert-large-cased", "2018-10", None, {**_CASED, **_LARGE}),
    row("roberta-base", "FacebookAI/roberta-base", "2019-07", 124697433, {**_ROBERTA, **_BASE}),
    row("roberta-large", "FacebookAI/roberta-large", "2019-07", 355412057, {**_ROBERTA, **_LARGE}),
    row("modernbert-base", "answerdotai/ModernBERT-base", "2024-12", 149655232, {
        **_MODERN, "hidden_size": 768, "num_hidden_layers": 22, "num_attention_heads": 12, "intermediate_size": 1152,
    }),
    row("modernbert-large", "answerdotai/ModernBERT-large", "2024-12", 395881664, {
        **_MODERN, "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "intermediate_size": 2624,
    }),
)  # fmt: skip
