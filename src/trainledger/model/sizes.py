"""The sizes of a model that degrees of parallelism must divide, read off its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.facts.model_types import MODEL_TYPES
from trainledger.model.families.moe import EXPERT_WIDTH, EXPERTS
from trainledger.model.keys import Keys

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_query_groups", "num_kv_heads")
_FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
_MTP = ("num_nextn_predict_layers", "num_mtp_layers")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of a model; None where its keys do not say. `ffn` is the width of dense layers, None where there are none;
    `experts` is None for a dense model; `shared_ffn` is the width of its shared experts together."""

    layers: int | None
    heads: int | None
    kv_heads: int | None
    ffn: int | None
    experts: int | None
    expert_ffn: int | None
    shared_ffn: int | None
    mtp: int


def sizes_of(given: Mapping[str, Any]) -> Sizes:
    """The sizes that a model's keys give, its type's defaults filled in. Keys that are no counts are left out."""
    row = MODEL_TYPES.get(str(given.get("model_type")))
    keys = Keys(given, dict(row.defaults) if row is not None else {})

    def count(*names: str) -> int | None:
        value = keys.raw(*names)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    heads, experts, latent = count(*_HEADS), count(*EXPERTS), count("kv_lora_rank")
    width = count(*EXPERT_WIDTH, "intermediate_size") if experts else None
    shared, single = count("shared_expert_intermediate_size"), count("n_shared_experts")
    return Sizes(
        layers=count(*_LAYERS),
        heads=heads,
        kv_heads=heads if latent else count(*_KV_HEADS) or heads,
        ffn=count(*_FFN) if experts is None or _some_dense(keys) else None,
        experts=experts,
        expert_ffn=width,
        shared_ffn=shared or (single * width if single and width else None),
        mtp=count(*_MTP) or 0,
    )


def _some_dense(keys: Keys) -> bool:
    """Whether a model with experts has dense feed-forwards as well."""
    if keys.raw("enable_moe_block"):
        return True
    return bool(keys.raw("first_k_dense_replace")) or keys.raw("moe_layer_freq") not in (None, 1)
