"""Experts as modules of their own: names, order and counts, and which plans have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.model.build import model_of
from trainledger.model.counts import active, total, trainable, tuned
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


# counts of PEFT 0.21.2 on Transformers 4.57.3, 3 layers of hidden size 256 and width 640, 4 experts, rank 8
ADAPTED = {"model_type": "", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 64,
           "num_key_value_heads": 2, "intermediate_size": 640, "num_experts_per_tok": 2, "vocab_size": 1024,
           "tie_word_embeddings": False}  # fmt: skip
WIDTHS = {"num_experts": 4, "moe_intermediate_size": 640}
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": WIDTHS,
    "qwen2_moe": {**WIDTHS, "shared_expert_intermediate_size": 640},
}


@pytest.mark.parametrize(
    ("family", "targets", "count"),
    [
        ("mixtral", "all-linear", 307296),
        ("mixtral", ["q_proj", "gate"], 18528),
        ("mixtral", ["q_proj", "w1", "w2", "w3"], 270336),
        ("mixtral", r".*\.experts\.\d+\.w2", 86016),
        ("qwen3_moe", "all-linear", 307296),
        ("qwen3_moe", ["up_proj"], 86016),
        ("qwen3_moe", ["q_proj", "w1"], 12288),
        ("qwen2_moe", "all-linear", 377976),
        ("qwen2_moe", ["up_proj"], 107520),
    ],
)
@pytest.mark.parametrize("packed", [None, {"kind": "nf4"}])
def test_adapters_of_experts_apart(family: str, targets: Any, count: int, packed: dict[str, Any] | None) -> None:
    keys = {**ADAPTED, "model_type": family, **KINDS[family]}
    adapter = {"kind": "lora", "r": 8, "targets": targets}
    versions = {"transformers": "4.57.3", "peft": "0.21.2"}
    model = model_of(plan_of(keys, adapter=adapter, quantization=packed, stack={"versions": versions}))
    assert tuned(model) == count
    names = [weight.name for block in model.blocks for weight in block.weights]
    assert len(names) == len(set(names))


def test_a_token_passes_the_adapters_of_its_experts() -> None:
    keys = {**ADAPTED, "model_type": "mixtral", **KINDS["mixtral"]}
    plans = [
        plan_of(
            keys,
            adapter={"kind": "lora", "r": 8, "targets": targets},
            stack={"versions": {"transformers": "4.57.3", "peft": "0.21.2"}},
        )
        for targets in (["q_proj"], ["q_proj", "w2"])
    ]
    assert active(model_of(plans[1])) - active(model_of(plans[0])) == 86016 // 2
