"""Plans for tests, made from a few keys."""

from __future__ import annotations

from typing import Any

from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.plan.schema import Plan

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip


def plan_of(model: dict[str, Any] | str = LLAMA, **sections: Any) -> Plan:
    """A resolved plan: pure bf16 AdamW on one device, with the sections given laid over."""
    data: dict[str, Any] = {
        "model": model,
        "task": "pretrain",
        "precision": {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"},
        "optimizer": {"name": "adamw", "implementation": "foreach", "grad_clip": None},
        "batch": {"micro_batch": 1, "sequence": 512},
        "stack": {
            "framework": "transformers", "versions": {"torch": "2.14.1", "transformers": "5.24.0"},
            "attention": "sdpa", "recompute": "none", "loss": "full-fp32",
        },
        "device": "a100-80gb",
    }  # fmt: skip
    for name, section in sections.items():
        data[name] = (
            {**data[name], **section} if isinstance(data.get(name), dict) and isinstance(section, dict) else section
        )
    return draft_of(Document(data, {})).plan
