"""Which model of the catalogue has the shape of one that is not in it."""

from __future__ import annotations

import pytest

from trainledger.importers.shapes import shape_of


@pytest.mark.parametrize(
    ("name", "base", "tuned"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B", True),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-4B", True),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistralai/Mistral-7B-v0.3", True),
        ("deepseek-ai/deepseek-llm-7b-chat", "deepseek-ai/deepseek-llm-7b-base", True),
        ("NousResearch/Llama-2-7b-hf", "meta-llama/Llama-2-7b-hf", False),
        ("NousResearch/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", True),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B", False),
        ("unsloth/Qwen3-14B", "Qwen/Qwen3-14B", False),
    ],
)
def test_tuned_models_and_copies_have_a_shape(name: str, base: str, tuned: bool) -> None:
    found = shape_of(name)
    assert found is not None
    assert (found.base, found.tuned) == (base, tuned)


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-7B",
        "gpt2",
        "meta-llama/Llama-2-7b-hf",
        "someone/Qwen3-14B",
        "someone/else-Instruct",
        "unsloth/Qwen3-14B-bnb-4bit",
    ],
)
def test_known_names_and_others_have_none(name: str) -> None:
    assert shape_of(name) is None
