"""Models of other makers that kept Llama's architecture."""

from __future__ import annotations

from trainledger.facts.catalogue.entry import Entry, Keys, row, shape

_LLAMA: Keys = {"model_type": "llama", "vocab_size": 32000, "hidden_act": "silu", "tie_word_embeddings": False}
_SMOL: Keys = {**_LLAMA, "vocab_size": 49152, "tie_word_embeddings": True}
_SMOL_135M: Keys = {**_SMOL, **shape(576, 30, 9, 3, 1536)}
_SMOL_360M: Keys = {**_SMOL, **shape(960, 32, 15, 5, 2560)}
_SMOL_1_7B: Keys = {**_SMOL, **shape(2048, 24, 32, 32, 8192)}
_YI: Keys = {**_LLAMA, "vocab_size": 64000}
_DEEPSEEK: Keys = {**_LLAMA, "vocab_size": 102400}
_DEEPSEEK_CODER: Keys = {**_LLAMA, "vocab_size": 32256}
_FALCON3: Keys = {**_LLAMA, "vocab_size": 131072, "head_dim": 256}
_LLAMA3: Keys = {**_LLAMA, "vocab_size": 128256}

ENTRIES: tuple[Entry, ...] = (
    row("tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "2023-12", 1100048384,
        {**_LLAMA, **shape(2048, 22, 32, 4, 5632)}),
    row("open-llama-3b", "openlm-research/open_llama_3b", "2023-06", 3426473600,
        {**_LLAMA, **shape(3200, 26, 32, 32, 8640)}),
    row("vicuna-7b-v1.5", "lmsys/vicuna-7b-v1.5", "2023-07", 6738415616, {**_LLAMA, **shape(4096, 32, 32, 32, 11008)}),
    row("vicuna-13b-v1.5", "lmsys/vicuna-13b-v1.5", "2023-07", 13015864320,
        {**_LLAMA, **shape(5120, 40, 40, 40, 13824)}),
    row("smollm-135m", "HuggingFaceTB/SmolLM-135M", "2024-07", 134515008, _SMOL_135M),
    row("smollm-360m", "HuggingFaceTB/SmolLM-360M", "2024-07", 361821120, _SMOL_360M),
    row("smollm-1.7b", "HuggingFaceTB/SmolLM-1.7B", "2024-07", 1711376384, _SMOL_1_7B),
    row("smollm2-135m", "HuggingFaceTB/SmolLM2-135M", "2024-10", 134515008, _SMOL_135M),
    row("smollm2-360m", "HuggingFaceTB/SmolLM2-360M", "2024-10", 361821120, _SMOL_360M),
    row("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", "2024-10", 1711376384, _SMOL_1_7B),
    row("yi-6b", "01-ai/Yi-6B", "2023-11", 6061035520, {**_YI, **shape(4096, 32, 32, 4, 11008)}),
    row("yi-34b", "01-ai/Yi-34B", "2023-11", 34388917248, {**_YI, **shape(7168, 60, 56, 8, 20480)}),
    row("yi-1.5-9b", "01-ai/Yi-1.5-9B", "2024-05", 8829407232, {**_YI, **shape(4096, 48, 32, 4, 11008)}),
    row("deepseek-llm-7b", "deepseek-ai/deepseek-llm-7b-base", "2023-11", 6910365696,
        {**_DEEPSEEK, **shape(4096, 30, 32, 32, 11008)}),
    row("deepseek-llm-67b", "deepseek-ai/deepseek-llm-67b-base", "2023-11", None,
        {**_DEEPSEEK, **shape(8192, 95, 64, 8, 22016)}),
    row("deepseek-coder-1.3b", "deepseek-ai/deepseek-coder-1.3b-base", "2023-10", 1346471936,
        {**_DEEPSEEK_CODER, **shape(2048, 24, 16, 16, 5504)}),
    row("deepseek-coder-6.7b", "deepseek-ai/deepseek-coder-6.7b-base", "2023-10", 6740512768,
        {**_DEEPSEEK_CODER, **shape(4096, 32, 32, 32, 11008)}),
    row("deepseek-r1-distill-llama-8b", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "2025-01", 8030261248,
        {**_LLAMA3, **shape(4096, 32, 32, 8, 14336)}),
    row("deepseek-r1-distill-llama-70b", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "2025-01", 70553706496,
        {**_LLAMA3, **shape(8192, 80, 64, 8, 28672)}),
    row("falcon3-1b", "tiiuae/Falcon3-1B-Base", "2024-12", 1669408768, {**_FALCON3, **shape(2048, 18, 8, 4, 8192)}),
    row("falcon3-3b", "tiiuae/Falcon3-3B-Base", "2024-12", 3227655168, {**_FALCON3, **shape(3072, 22, 12, 4, 9216)}),
    row("falcon3-7b", "tiiuae/Falcon3-7B-Base", "2024-12", 7455550464, {**_FALCON3, **shape(3072, 28, 12, 4, 23040)}),
    row("falcon3-10b", "tiiuae/Falcon3-10B-Base", "2024-12", 10305653760,
        {**_FALCON3, **shape(3072, 40, 12, 4, 23040)}),
)  # fmt: skip
