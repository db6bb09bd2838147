"""Every kind of model and run repeats its step: what the second made and let go of, in order, the third does too.

In its layers the first does so too: what layers are compared by is one step.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.runs import Case, happened, record_of
from tests.witness.saved import LAYER
from trainledger.evidence.trace.record import Record

PLAIN: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
}  # fmt: skip
GROUPED = {**PLAIN, "num_key_value_heads": 2}
HEADED = {**GROUPED, "head_dim": 16}
LLAMA = {**GROUPED, "model_type": "llama"}
BERT = {**PLAIN, "model_type": "bert", "max_position_embeddings": 64}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 64},
    "bert": {**BERT, "architectures": ["BertForMaskedLM"]},
    "opt": {
        "model_type": "opt", "hidden_size": 64, "ffn_dim": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 256, "max_position_embeddings": 64, "word_embed_proj_dim": 64,
    },
    "gpt_neox": {**PLAIN, "model_type": "gpt_neox", "max_position_embeddings": 64},
    "gemma": {**HEADED, "model_type": "gemma"},
    "gemma2": {**HEADED, "model_type": "gemma2"},
    "gemma3_text": {**HEADED, "model_type": "gemma3_text"},
    "gemma4_text": {**HEADED, "model_type": "gemma4_text", "hidden_size_per_layer_input": 0},
    "phi3": {**GROUPED, "model_type": "phi3", "pad_token_id": 0},
    "qwen3": {**HEADED, "model_type": "qwen3"},
    "olmo2": {**GROUPED, "model_type": "olmo2"},
    "mistral": {**GROUPED, "model_type": "mistral"},
    "mixtral": {**GROUPED, "model_type": "mixtral", "num_local_experts": 4},
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "recompute": {"recompute": "full"},
    "re-entrant": {"recompute": "full-reentrant"},
    "autocast": {"weights": "fp32", "autocast": "bf16"},
    "autocast-recompute": {"weights": "fp32", "autocast": "bf16", "recompute": "full"},
    "half": {"weights": "fp16", "kernel": "eager"},
    "micro-batches": {"accumulation": 2, "clip": 1.0},
    "loop": {"implementation": "loop"},
    "fused": {"implementation": "fused"},
    "cudnn": {"kernel": "cudnn"},
    "efficient": {"kernel": "efficient"},
    "math": {"kernel": "math"},
}
RUNS = [
    *((LLAMA, {"optimizer": "adamw", **more}) for more in VARIANTS.values()),
    *((config, {"kernel": "eager"} if name == "gemma2" else {}) for name, config in MODELS.items()),
]
NAMES = [*VARIANTS, *MODELS]
ANY = re.compile("")
PASSES = ("forward", "backward")


def sizes(record: Record, step: str, module: re.Pattern[str] = ANY) -> dict[str, list[int]]:
    """Events of a step by moment, micro-batches in turn, of modules that are asked for."""
    found: dict[str, list[int]] = {}
    for moment, events in record.stretches:
        if moment.startswith(step):
            chosen = (one.size for one in happened(record, events) if module.search(one.birth.module))
            found.setdefault(moment.removeprefix(step), []).extend(chosen)
    return found


@pytest.mark.parametrize(("config", "more"), RUNS, ids=NAMES)
def test_steps_repeat(config: dict[str, Any], more: dict[str, Any]) -> None:
    case = Case(batch=2, steps=3, **more)
    record = record_of(config, case)
    second = sizes(record, "step 2: ")
    assert {"forward", "loss", "backward"} <= second.keys()
    assert second == sizes(record, "step 3: ")
    first, second = (sizes(record, step, LAYER) for step in ("step 1: ", "step 2: "))
    assert {phase: first[phase] for phase in PASSES} == {phase: second[phase] for phase in PASSES}
