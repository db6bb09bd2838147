"""Adapters of stacked experts and routers: what targets mean to PEFT, and the parameters that it adds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.model import counts
from trainledger.model.build import model_of
from trainledger.model.program import Model

EXPERTS, HIDDEN, WIDTH, LAYERS, RANK = 4, 256, 640, 3, 8
QWEN = {**LLAMA, "model_type": "qwen3_moe", "num_experts": EXPERTS, "num_experts_per_tok": 2,
        "moe_intermediate_size": WIDTH}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": EXPERTS, "num_experts_per_tok": 2}
OWN = {**QWEN, "model_type": "qwen2_moe", "shared_expert_intermediate_size": WIDTH}
NEW = {"transformers": "5.24.0", "peft": "0.21.2"}
DOWN = EXPERTS * RANK * (WIDTH + HIDDEN)
GATE_UP = 2 * EXPERTS * RANK * (HIDDEN + 2 * WIDTH)  # twice the rank, as it stands for two layers
ROUTER = RANK * (HIDDEN + EXPERTS)
Q = RANK * (HIDDEN + HIDDEN)


def model(keys: dict[str, Any], targets: Any, versions: dict[str, str] | None = None, **options: Any) -> Model:
    adapter = {"kind": "lora", "r": RANK, "targets": targets, "options": options}
    return model_of(plan_of(keys, adapter=adapter, stack={"versions": {**NEW, **(versions or {})}}))


@pytest.mark.parametrize(
    ("keys", "targets", "count"),
    [
        (QWEN, ["q_proj"], Q),
        (QWEN, ["q_proj", "down_proj"], Q + DOWN),
        (QWEN, ["q_proj", "gate_proj", "up_proj", "down_proj", "gate"], Q + GATE_UP + DOWN + ROUTER),
        (QWEN, r".*\.(q_proj|down_proj)", Q + DOWN),
        (MIXTRAL, ["q_proj", "w1", "w3", "w2"], Q + GATE_UP + DOWN),
        (OWN, ["q_proj", "down_proj"], Q + RANK * (WIDTH + HIDDEN)),  # the shared expert's linear layer alone
    ],
)
def test_names_of_before_mean_parameters(keys: dict[str, Any], targets: Any, count: int) -> None:
    assert counts.tuned(model(keys, targets)) == LAYERS * count


def test_all_linear_means_experts_but_for_front_ends_that_look_for_linear_layers() -> None:
    every = counts.tuned(model(QWEN, "all-linear"))
    for package in ("axolotl", "llamafactory", "ms-swift"):
        found = counts.tuned(model(QWEN, "all-linear", {package: "0.9"}))
        assert every - found == LAYERS * (GATE_UP + DOWN + ROUTER)


def test_a_release_before_reads_no_names_as_parameters() -> None:
    old = model(QWEN, ["q_proj", "down_proj"], {"peft": "0.18.1"})
    assert counts.tuned(old) == LAYERS * Q


def test_parameters_are_named_by_themselves_and_by_layer() -> None:
    names = ["mlp.experts.gate_up_proj", "layers.1.mlp.experts.down_proj"]
    made = model(QWEN, ["q_proj"], target_parameters=names)
    assert counts.tuned(made) == LAYERS * Q + LAYERS * GATE_UP // 2 + DOWN
    assert len(made.blocks) == 2
    names_of = [weight.name for block in made.blocks for weight in block.weights if weight.tuned]
    assert "mlp.experts.base_layer.lora_A.default.weight" in names_of  # of two wrappers the inner is gate_up_proj's


def test_a_token_passes_the_adapters_of_its_experts() -> None:
    plain, made = model(QWEN, ["q_proj"]), model(QWEN, ["q_proj", "down_proj"])
    assert counts.active(made) - counts.active(plain) == LAYERS * DOWN // EXPERTS * 2


def test_ranks_by_pattern() -> None:
    made = model(QWEN, ["q_proj"], target_parameters=["experts.down_proj"], rank_pattern={".*down_proj": 4 * RANK})
    assert counts.tuned(made) == LAYERS * (Q + 4 * DOWN)
