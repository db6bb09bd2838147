"""Meta's OPT."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row

_OPT: Keys = {
    "model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048, "activation_function": "relu",
    "tie_word_embeddings": True, "do_layer_norm_before": True, "enable_bias": True, "dropout": 0.1,
    "attention_dropout": 0.0,
}  # fmt: skip


def _sized(hidden: int, layers: int, heads: int) -> Keys:
    sizes: Keys = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**_OPT, **sizes, "ffn_dim": 4 * hidden, "word_embed_proj_dim": hidden}


ENTRIES: tuple[Entry, ...] = (
    row("opt-125m", "facebook/opt-125m", "2022-05", 125239296, _sized(768, 12, 12)),
    row("opt-350m", "facebook/opt-350m", "2022-05", 331196416,
        {**_sized(1024, 24, 16), "word_embed_proj_dim": 512, "do_layer_norm_before": False}),
    row("opt-1.3b", "facebook/opt-1.3b", "2022-05", 1315758080, _sized(2048, 24, 32)),
    row("opt-2.7b", "facebook/opt-2.7b", "2022-05", 2651596800, _sized(2560, 32, 32)),
    row("opt-6.7b", "facebook/opt-6.7b", "2022-05", 6658473984, _sized(4096, 32, 32)),
    row("opt-13b", "facebook/opt-13b", "2022-05", 12853473280, _sized(5120, 40, 40)),
    row("opt-30b", "facebook/opt-30b", "2022-05", 29974540288, _sized(7168, 48, 56)),
    row("opt-66b", "facebook/opt-66b", "2022-06", None, _sized(9216, 64, 72)),
)  # fmt: skip
