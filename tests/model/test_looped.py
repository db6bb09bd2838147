"""Experts as modules of their own: names, order and counts, and which plans have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.model.build import model_of
from trainledger.model.counts import active, total, trainable
from trainledger.model.program import Experts, Looped, Model

BASE = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
}
ROUTED = {**BASE, "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 320, "moe_intermediate_size": 96}
MODELS: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", **BASE, "intermediate_size": 320, "num_local_experts": 4},
    "qwen2_moe": {"model_type": "qwen2_moe", **ROUTED, "shared_expert_intermediate_size": 160},
    "qwen3_moe": {"model_type": "qwen3_moe", **ROUTED, "head_dim": 32, "mlp_only_layers": [1]},
    "olmoe": {"model_type": "olmoe", **ROUTED},
}


def built(family: str, transformers: str, **sections: Any) -> Model:
    return model_of(plan_of(MODELS[family], stack={"versions": {"transformers": transformers}}, **sections))


@pytest.mark.parametrize("family", MODELS)
def test_apart_or_stacked_the_parameters_are_the_same(family: str) -> None:
    old, new = built(family, "4.57.1"), built(family, "5.24.0")
    assert total(old) == total(new)
    assert active(old) == active(new)
    spec = next(op.spec for op in old.blocks[0].ops if isinstance(op.spec, Looped))
    assert set(spec.weights) <= set(old.blocks[0].weights)
    assert not [op for block in old.blocks for op in block.ops if isinstance(op.spec, Experts)]
    assert not [op for block in new.blocks for op in block.ops if isinstance(op.spec, Looped)]


def test_names_and_order_are_those_of_the_class() -> None:
    names = [one.name for one in built("mixtral", "4.48.1").blocks[0].weights if "sparse" in one.name]
    assert names[:4] == [
        "block_sparse_moe.gate.weight",
        *(f"block_sparse_moe.experts.0.{name}.weight" for name in ("w1", "w2", "w3")),
    ]
    names = [one.name for one in built("olmoe", "4.48.1").blocks[0].weights if "experts" in one.name]
    assert names[3:6] == [f"mlp.experts.1.{name}_proj.weight" for name in ("gate", "up", "down")]


def test_patterns_choose_among_experts() -> None:
    model = built("mixtral", "4.57.1", trainable=["block_sparse_moe.experts.1.w2"])
    assert trainable(model) == 2 * 128 * 320


def test_a_shared_expert_runs_after_the_routed_ones() -> None:
    names = [op.name for op in built("qwen2_moe", "4.57.1").blocks[0].ops]
    assert (
        names.index("mlp.experts") < names.index("mlp.shared_expert.gate_proj") < names.index("mlp.shared_expert_gate")
    )
    names = [op.name for op in built("qwen2_moe", "5.24.0").blocks[0].ops]
    assert names.index("mlp.experts") > names.index("mlp.shared_expert.gate_proj")


@pytest.mark.parametrize(
    ("family", "transformers", "finds"),
    [
        ("mixtral", "4.51.3", False),
        ("mixtral", "4.52.4", True),
        ("qwen3_moe", "4.52.4", False),
        ("qwen3_moe", "4.53.3", True),
        ("olmoe", "4.57.1", False),
    ],
)
def test_by_release_experts_without_tokens_are_passed_over(family: str, transformers: str, finds: bool) -> None:
    blocks = built(family, transformers).blocks
    assert [op.spec.finds for op in blocks[0].ops if isinstance(op.spec, Looped)] == [finds]


def test_the_load_comes_from_the_plan() -> None:
    for given, load in (("mean", 1.0), ("worst", 0.0), (2.5, 2.5)):
        model = built("mixtral", "4.57.1", batch={"expert_load": given})
        assert [op.spec.load for op in model.blocks[0].ops if isinstance(op.spec, Looped)] == [load]


def test_frozen_experts_stay_as_they_were() -> None:
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj"]}
    model = built("mixtral", "4.57.1", adapter=adapter)
    assert [op for op in model.blocks[0].ops if isinstance(op.spec, Experts)]
