"""The first Falcon models of TII (Falcon 3 kept Llama's architecture and stands with those)."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row

_FALCON: Keys = {
    "model_type": "falcon", "vocab_size": 65024, "activation": "gelu", "tie_word_embeddings": True, "alibi": False,
    "bias": False, "multi_query": True, "parallel_attn": True, "new_decoder_architecture": False,
    "hidden_dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
_GROUPED: Keys = {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 8}


def _sized(hidden: int, layers: int, heads: int) -> Keys:
    return {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}


ENTRIES: tuple[Entry, ...] = (
    row("falcon-rw-1b", "tiiuae/falcon-rw-1b", "2023-04", 1311625216, {
        **_FALCON, **_sized(2048, 24, 32), "vocab_size": 50304, "alibi": True, "bias": True, "multi_query": False,
        "parallel_attn": False,
    }),
    row("falcon-7b", "tiiuae/falcon-7b", "2023-04", 6921720704, {**_FALCON, **_sized(4544, 32, 71)}),
    row("falcon-40b", "tiiuae/falcon-40b", "2023-05", 41303293952, {**_GROUPED, **_sized(8192, 60, 128)}),
    row("falcon-180b", "tiiuae/falcon-180B", "2023-08", 178557088768, {**_GROUPED, **_sized(14848, 80, 232)}),
)  # fmt: skip
