"""Experts as Transformers had them before 5.0: modules of their own, run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """Names of the module that has router and experts, and of an expert's linear layers: gate, up, down. `order`: the
    places of these three in the order in which an expert registers them."""

    module: str
    gate: str
    up: str
    down: str
    order: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class LoopedExperts:
    """Names by model type, and the release since which experts without tokens are passed over: those that have some are
    found first, and an expert's part of the mask is a copy."""

    names: Mapping[str, ExpertNames]
    finds: Mapping[str, str]
    source: Source

    def finds_first(self, family: str, transformers: str) -> bool:
        """Whether the loop is over the experts that have tokens."""
        since = self.finds.get(family)
        return since is not None and at_least(transformers or None, since)


_QWEN = ExpertNames("mlp", "gate_proj", "up_proj", "down_proj", (0, 1, 1 + 1))
LOOPED_EXPERTS = LoopedExperts(
    {
        "mixtral": ExpertNames("block_sparse_moe", "w1", "w3", "w2", (0, 1 + 1, 1)),
        "qwen2_moe": _QWEN,
        "qwen3_moe": _QWEN,
        "olmoe": _QWEN,
    },
    {"mixtral": "4.52", "qwen2_moe": "4.52", "qwen3_moe": "4.53"},
    Source(
        "Transformers sparse feed-forward blocks",
        "transformers/models/{mixtral,qwen2_moe,qwen3_moe,olmoe}/modeling_*.py, *SparseMoeBlock.forward",
        "4.45.2 to 4.57.1",
    ),
)
