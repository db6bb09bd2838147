"""Which file holds which model: names alone, so that listing them reads no row."""

from __future__ import annotations

MODULES: dict[str, tuple[str, ...]] = {
    "llama": (
        "llama-7b", "llama-13b", "llama-30b", "llama-65b", "llama-2-7b", "llama-2-13b", "llama-2-70b", "codellama-7b",
        "codellama-13b", "codellama-34b", "llama-3-8b", "llama-3-70b", "llama-3.1-8b", "llama-3.1-70b",
        "llama-3.1-405b", "llama-3.2-1b", "llama-3.2-3b", "llama-3.3-70b", "llama-4-scout-text",
        "llama-4-maverick-text",
    ),
    "llama_like": (
        "tinyllama-1.1b", "open-llama-3b", "vicuna-7b-v1.5", "vicuna-13b-v1.5", "smollm-135m", "smollm-360m",
        "smollm-1.7b", "smollm2-135m", "smollm2-360m", "smollm2-1.7b", "yi-6b", "yi-34b", "yi-1.5-9b",
        "deepseek-llm-7b", "deepseek-llm-67b", "deepseek-coder-1.3b", "deepseek-coder-6.7b",
        "deepseek-r1-distill-llama-8b", "deepseek-r1-distill-llama-70b", "falcon3-1b", "falcon3-3b", "falcon3-7b",
        "falcon3-10b",
    ),
    "mistral": (
        "mistral-7b-v0.1", "mistral-7b-v0.2", "mistral-7b-v0.3", "mistral-nemo-12b", "mistral-small-24b",
        "mistral-large-123b", "zephyr-7b-beta", "mixtral-8x7b", "mixtral-8x22b",
    ),
    "qwen": (
        "qwen1.5-0.5b", "qwen1.5-1.8b", "qwen1.5-4b", "qwen1.5-7b", "qwen1.5-14b", "qwen1.5-32b", "qwen1.5-72b",
        "qwen2-0.5b", "qwen2-1.5b", "qwen2-7b", "qwen2-72b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",
        "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen2.5-72b", "qwen2.5-coder-7b", "qwen2.5-coder-32b", "qwq-32b",
        "deepseek-r1-distill-qwen-1.5b", "deepseek-r1-distill-qwen-7b", "deepseek-r1-distill-qwen-14b",
        "deepseek-r1-distill-qwen-32b", "qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b",
    ),
    "qwen_moe": (
        "qwen1.5-moe-a2.7b", "qwen2-57b-a14b", "qwen3-30b-a3b", "qwen3-235b-a22b", "qwen3-coder-480b-a35b",
        "qwen3-next-80b-a3b",
    ),
    "gemma": (
        "gemma-2b", "gemma-7b", "gemma-2-2b", "gemma-2-9b", "gemma-2-27b", "gemma-3-270m", "gemma-3-1b",
        "gemma-3-4b-text", "gemma-3-12b-text", "gemma-3-27b-text", "gemma-4-31b-text",
        "gemma-4-26b-a4b-text",
    ),
    "phi": (
        "phi-1", "phi-1.5", "phi-2", "phi-3-mini", "phi-3-medium", "phi-3.5-mini", "phi-4", "phi-4-mini",
    ),
    "openai": (
        "distilgpt2", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "gpt-oss-20b", "gpt-oss-120b",
    ),
    "gpt_neox": (
        "pythia-14m", "pythia-70m", "pythia-160m", "pythia-410m", "pythia-1b", "pythia-1.4b", "pythia-2.8b",
        "pythia-6.9b", "pythia-12b", "gpt-neox-20b",
    ),
    "opt": (
        "opt-125m", "opt-350m", "opt-1.3b", "opt-2.7b", "opt-6.7b", "opt-13b", "opt-30b", "opt-66b",
    ),
    "falcon": (
        "falcon-rw-1b", "falcon-7b", "falcon-40b", "falcon-180b",
    ),
    "turned": (
        "gpt-j-6b", "codegen-350m", "codegen-2b", "codegen-6b", "codegen-16b", "stablelm-3b-4e1t", "stablelm-zephyr-3b",
        "stablelm-2-1.6b", "persimmon-8b", "minitron-4b", "nemotron-4-340b", "olmo-1b", "olmo-7b",
    ),
    "alibi": (
        "bloom-560m", "bloom-1b1", "bloom-1b7", "bloom-3b", "bloom-7b1", "bloom", "mpt-7b", "mpt-30b",
    ),
    "olmo": (
        "olmo-2-1b", "olmo-2-7b", "olmo-2-13b", "olmo-2-32b", "olmoe-1b-7b",
    ),
    "code": (
        "santacoder", "starcoderbase-1b", "starcoderbase-3b", "starcoderbase-7b", "starcoderbase", "granite-20b-code",
        "granite-34b-code", "starcoder2-3b", "starcoder2-7b", "starcoder2-15b",
    ),
    "cohere": (
        "command-r", "command-r-08-2024", "command-r-plus", "aya-23-8b", "aya-23-35b",
    ),
    "glm": (
        "glm-4-9b", "glm-4-9b-0414", "glm-4-32b-0414",
    ),
    "granite": (
        "granite-3.0-2b", "granite-3.0-8b", "granite-3.1-2b", "granite-3.1-8b", "granite-3.3-2b", "granite-3.3-8b",
        "powerlm-3b",
    ),
    "encoders": (
        "bert-base-uncased", "bert-base-cased", "bert-large-uncased", "bert-large-cased", "roberta-base",
        "roberta-large", "modernbert-base", "modernbert-large",
    ),
    "deepseek": (
        "deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "deepseek-r1", "kimi-k2",
    ),
}  # fmt: skip
