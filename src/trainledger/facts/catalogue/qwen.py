"""Alibaba's dense Qwen 1.5, 2, 2.5 and 3."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_QWEN2: Keys = {"model_type": "qwen2", "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False}
_TIED: Keys = {**_QWEN2, "tie_word_embeddings": True}
_WIDE: Keys = {**_QWEN2, "vocab_size": 152064}
_0_5B: Keys = {**_TIED, **shape(896, 24, 14, 2, 4864)}
_1_5B: Keys = {**_TIED, **shape(1536, 28, 12, 2, 8960)}
_7B: Keys = {**_WIDE, **shape(3584, 28, 28, 4, 18944)}
_14B: Keys = {**_WIDE, **shape(5120, 48, 40, 8, 13824)}
_32B: Keys = {**_WIDE, **shape(5120, 64, 40, 8, 27648)}
_72B: Keys = {**_WIDE, **shape(8192, 80, 64, 8, 29568)}
_QWEN3: Keys = {
    "model_type": "qwen3", "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False, "head_dim": 128,
    "attention_bias": False,
}  # fmt: skip
_QWEN3_TIED: Keys = {**_QWEN3, "tie_word_embeddings": True}

ENTRIES: tuple[Entry, ...] = (
    row("qwen1.5-0.5b", "Qwen/Qwen1.5-0.5B", "2024-02", 463987712, {**_TIED, **shape(1024, 24, 16, 16, 2816)}),
    row("qwen1.5-1.8b", "Qwen/Qwen1.5-1.8B", "2024-02", 1836828672, {**_QWEN2, **shape(2048, 24, 16, 16, 5504)}),
    row("qwen1.5-4b", "Qwen/Qwen1.5-4B", "2024-02", 3950369280, {**_QWEN2, **shape(2560, 40, 20, 20, 6912)}),
    row("qwen1.5-7b", "Qwen/Qwen1.5-7B", "2024-02", 7721324544, {**_QWEN2, **shape(4096, 32, 32, 32, 11008)}),
    row("qwen1.5-14b", "Qwen/Qwen1.5-14B", "2024-02", 14167290880, {**_WIDE, **shape(5120, 40, 40, 40, 13696)}),
    row("qwen1.5-32b", "Qwen/Qwen1.5-32B", "2024-04", 32512218112, {**_WIDE, **shape(5120, 64, 40, 8, 27392)}),
    row("qwen1.5-72b", "Qwen/Qwen1.5-72B", "2024-02", 72287920128, {**_WIDE, **shape(8192, 80, 64, 64, 24576)}),
    row("qwen2-0.5b", "Qwen/Qwen2-0.5B", "2024-06", 494032768, _0_5B),
    row("qwen2-1.5b", "Qwen/Qwen2-1.5B", "2024-06", 1543714304, _1_5B),
    row("qwen2-7b", "Qwen/Qwen2-7B", "2024-06", 7615616512, _7B),
    row("qwen2-72b", "Qwen/Qwen2-72B", "2024-06", 72706203648, _72B),
    row("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "2024-09", 494032768, _0_5B),
    row("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", "2024-09", 1543714304, _1_5B),
    row("qwen2.5-3b", "Qwen/Qwen2.5-3B", "2024-09", 3085938688, {**_TIED, **shape(2048, 36, 16, 2, 11008)}),
    row("qwen2.5-7b", "Qwen/Qwen2.5-7B", "2024-09", 7615616512, _7B),
    row("qwen2.5-14b", "Qwen/Qwen2.5-14B", "2024-09", 14770033664, _14B),
    row("qwen2.5-32b", "Qwen/Qwen2.5-32B", "2024-09", 32763876352, _32B),
    row("qwen2.5-72b", "Qwen/Qwen2.5-72B", "2024-09", 72706203648, _72B),
    row("qwen2.5-coder-7b", "Qwen/Qwen2.5-Coder-7B", "2024-09", 7615616512, _7B),
    row("qwen2.5-coder-32b", "Qwen/Qwen2.5-Coder-32B", "2024-11", 32763876352, _32B),
    row("qwq-32b", "Qwen/QwQ-32B", "2025-03", 32763876352, _32B),
    row("deepseek-r1-distill-qwen-1.5b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "2025-01", 1777088000,
        {**_QWEN2, **shape(1536, 28, 12, 2, 8960)}),
    row("deepseek-r1-distill-qwen-7b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "2025-01", 7615616512, _7B),
    row("deepseek-r1-distill-qwen-14b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "2025-01", 14770033664, _14B),
    row("deepseek-r1-distill-qwen-32b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "2025-01", 32763876352, _32B),
    row("qwen3-0.6b", "Qwen/Qwen3-0.6B", "2025-04", 596049920, {**_QWEN3_TIED, **shape(1024, 28, 16, 8, 3072)}),
    row("qwen3-1.7b", "Qwen/Qwen3-1.7B", "2025-04", 1720574976, {**_QWEN3_TIED, **shape(2048, 28, 16, 8, 6144)}),
    row("qwen3-4b", "Qwen/Qwen3-4B", "2025-04", 4022468096, {**_QWEN3_TIED, **shape(2560, 36, 32, 8, 9728)}),
    row("qwen3-8b", "Qwen/Qwen3-8B", "2025-04", 8190735360, {**_QWEN3, **shape(4096, 36, 32, 8, 12288)}),
    row("qwen3-14b", "Qwen/Qwen3-14B", "2025-04", 14768307200, {**_QWEN3, **shape(5120, 40, 40, 8, 17408)}),
    row("qwen3-32b", "Qwen/Qwen3-32B", "2025-04", 32762123264, {**_QWEN3, **shape(5120, 64, 64, 8, 25600)}),
)  # fmt: skip
