"""Goals that the tests of a search share: small models, and the published runs."""

from __future__ import annotations

from typing import Any

from trainledger.answer.search_goal import Goal, goal_of, space_of
from trainledger.facts.catalogue import find_model
from trainledger.facts.search_recipes import Published

SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 2816, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **SMALL, "model_type": "qwen3_moe", "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512,
    "head_dim": 128, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
}  # fmt: skip


def template(model: dict[str, Any], framework: str = "megatron", **keys: Any) -> dict[str, Any]:
    """What a search of a model begins with under a framework."""
    given = space_of(framework).given
    stack = {**given["stack"], "framework": framework, **keys.get("stack", {})}
    return {**given, "model": model, **keys, "stack": stack}


def small(framework: str = "megatron", model: dict[str, Any] | None = None, devices: str = "8xrtx4090") -> Goal:
    """A goal of few candidates, some of which do not fit."""
    return goal_of(template(model or SMALL, framework), devices, 64, 8192)


def published(row: Published) -> Goal:
    """The goal of a published run, with its own precision."""
    keys = {**find_model(row.models[0]).keys(), "name": row.models[0]}
    devices = f"{row.devices}x{row.device}"
    return goal_of(template(keys, **row.with_keys), devices, row.global_batch, row.sequence)
