"""EleutherAI's Pythia and GPT-NeoX."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row

_NEOX: Keys = {
    "model_type": "gpt_neox", "vocab_size": 50304, "hidden_act": "gelu", "tie_word_embeddings": False,
    "rotary_pct": 0.25, "use_parallel_residual": True, "attention_bias": True, "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip


def _sized(hidden: int, layers: int, heads: int) -> Keys:
    sizes: Keys = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    return {**_NEOX, **sizes, "intermediate_size": 4 * hidden}


ENTRIES: tuple[Entry, ...] = (
    row("pythia-14m", "EleutherAI/pythia-14m", "2023-07", 14067712, _sized(128, 6, 4)),
    row("pythia-70m", "EleutherAI/pythia-70m", "2023-02", 70426624, _sized(512, 6, 8)),
    row("pythia-160m", "EleutherAI/pythia-160m", "2023-02", 162322944, _sized(768, 12, 12)),
    row("pythia-410m", "EleutherAI/pythia-410m", "2023-02", 405334016, _sized(1024, 24, 16)),
    row("pythia-1b", "EleutherAI/pythia-1b", "2023-02", 1011781632, _sized(2048, 16, 8)),
    row("pythia-1.4b", "EleutherAI/pythia-1.4b", "2023-02", 1414647808, _sized(2048, 24, 16)),
    row("pythia-2.8b", "EleutherAI/pythia-2.8b", "2023-02", 2775208960, _sized(2560, 32, 32)),
    row("pythia-6.9b", "EleutherAI/pythia-6.9b", "2023-02", 6857302016,
        {**_sized(4096, 32, 32), "vocab_size": 50432}),
    row("pythia-12b", "EleutherAI/pythia-12b", "2023-02", 11846072320, {**_sized(5120, 36, 40), "vocab_size": 50688}),
    row("gpt-neox-20b", "EleutherAI/gpt-neox-20b", "2022-04", 20554567680,
        {**_sized(6144, 44, 64), "vocab_size": 50432, "hidden_act": "gelu_fast"}),
)  # fmt: skip
