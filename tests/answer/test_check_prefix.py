"""Prefix tuning that cannot run, or not as it is known, is refused by its key, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

BERT = {
    "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 512, "vocab_size": 1024,
}  # fmt: skip
STARCODER = {"model_type": "gpt_bigcode", "n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1024}
GEMMA3 = {**LLAMA, "model_type": "gemma3_text", "head_dim": 64, "sliding_window": 64, "pad_token_id": 0}
CLASSES = {**LLAMA, "architectures": ["LlamaForSequenceClassification"], "pad_token_id": 0}


def prefixed(model: dict[str, Any], count: int = 16, **sections: Any) -> Any:
    adapter = {"kind": "prefix-tuning", "dtype": "fp32", "options": {"num_virtual_tokens": count}}
    return plan_of(model, **{**sections, "adapter": {**adapter, **sections.get("adapter", {})}})


@pytest.mark.parametrize(
    ("path", "reason", "sections"),
    [
        ("stack.recompute", "no cache", {"stack": {"recompute": {"kind": "full", "reentrant": False}}}),
        ("stack.versions.peft", "0.18", {"stack": {"versions": {"peft": "0.17.1", "torch": "2.8.0"}}}),
        ("stack.versions.transformers", "4.56", {"stack": {"versions": {"transformers": "4.55.4"}}}),
        ("parallel.strategy", "gathered", {"parallel": {"strategy": "fsdp2", "dp": 2}}),
        ("stack.options.keep_outputs", "outputs", {"stack": {"options": {"keep_outputs": True}}}),
        ("model.model_type", "causal", {"model": BERT}),
        ("model.model_type", "fewer", {"model": STARCODER}),
        ("adapter.options.num_virtual_tokens", "window of 64", {"model": GEMMA3, "count": 64}),
        ("adapter.kind", "other", {"quantization": {"kind": "nf4"}}),
    ],
)
def test_refusals(path: str, reason: str, sections: dict[str, Any]) -> None:
    given = dict(sections)
    with pytest.raises(InputError) as caught:
        estimate(prefixed(given.pop("model", LLAMA), given.pop("count", 16), **given))
    (problem,) = [one for one in caught.value.problems if one.path == path]
    assert reason in f"{problem.found} {problem.allowed}"


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {**STARCODER, "multi_query": False}},
        {"model": GEMMA3, "count": 63},
        {"parallel": {"strategy": "ddp", "dp": 2}},
        {"parallel": {"strategy": "zero2", "dp": 2}, "adapter": {"dtype": "bf16"}},
        {"stack": {"versions": {"peft": "0.18.0", "transformers": "4.56.0", "torch": "2.8.0"}}},
    ],
)
def test_what_is_near_a_refusal_is_estimated(sections: dict[str, Any]) -> None:
    given = dict(sections)
    found = estimate(prefixed(given.pop("model", LLAMA), given.pop("count", 16), **given))
    assert 0 < found.parameters.trainable < found.parameters.total
