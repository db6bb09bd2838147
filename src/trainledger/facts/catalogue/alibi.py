"""BigScience's BLOOM and MosaicML's MPT."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row

_BLOOM: Keys = {
    "model_type": "bloom", "vocab_size": 250880, "tie_word_embeddings": True, "hidden_dropout": 0.0,
    "attention_dropout": 0.0, "apply_residual_connection_post_layernorm": False,
}  # fmt: skip
_MPT: Keys = {"model_type": "mpt", "vocab_size": 50432, "tie_word_embeddings": True}


def _bloom(size: str, hidden: int, layers: int, heads: int, parameters: int) -> Entry:
    keys = {**_BLOOM, "hidden_size": hidden, "n_layer": layers, "n_head": heads}
    return row(f"bloom-{size}", f"bigscience/bloom-{size}", "2022-07", parameters, keys)


ENTRIES: tuple[Entry, ...] = (
    _bloom("560m", 1024, 24, 16, 559214592),
    _bloom("1b1", 1536, 24, 16, 1065314304),
    _bloom("1b7", 2048, 24, 16, 1722408960),
    _bloom("3b", 2560, 30, 32, 3002557440),
    _bloom("7b1", 4096, 30, 32, 7069016064),
    row("bloom", "bigscience/bloom", "2022-07", 176247271424,
        {**_BLOOM, "hidden_size": 14336, "n_layer": 70, "n_head": 112}),
    row("mpt-7b", "mosaicml/mpt-7b", "2023-05", 6649286656,
        {**_MPT, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "max_seq_len": 2048}),
    row("mpt-30b", "mosaicml/mpt-30b", "2023-06", None,
        {**_MPT, "hidden_size": 7168, "num_hidden_layers": 48, "num_attention_heads": 64, "max_seq_len": 8192}),
)  # fmt: skip
