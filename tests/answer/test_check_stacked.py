"""Adapters of experts that PEFT itself refuses, or that cannot be estimated, are refused by their key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError

MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
NEW = {"transformers": "5.24.0", "peft": "0.21.2"}
LORA = {"kind": "lora", "r": 8, "targets": "all-linear"}
NAMED = {**LORA, "targets": ["q_proj"], "options": {"target_parameters": ["mlp.experts.down_proj"]}}


@pytest.mark.parametrize(
    ("path", "reason", "adapter", "versions", "strategy"),
    [
        ("adapter.targets", "experts are linear layers", {**LORA, "kind": "loha"}, {"transformers": "4.48.1"}, "none"),
        ("adapter.train_extra", "trained whole", {**LORA, "train_extra": ["w1"]}, {"transformers": "4.48.1"}, "none"),
        ("adapter.targets", "w1 and w3 together", {**LORA, "targets": ["q_proj", "w1"]}, {}, "none"),
        ("adapter.targets", "letter by letter", LORA, {"peft": "0.19.1"}, "none"),
        ("adapter.dropout", "take none", {**LORA, "dropout": 0.05}, {}, "none"),
        ("adapter.kind", "take none", {**LORA, "kind": "dora"}, {}, "none"),
        ("adapter.options.lora_bias", "take none", {**LORA, "options": {"lora_bias": True}}, {}, "none"),
        ("parallel.strategy", "was not read", LORA, {}, "zero3"),
        ("stack.versions.peft", "0.19", NAMED, {"peft": "0.18.1"}, "none"),
        (
            "adapter.options.target_parameters",
            "fits none",
            {**LORA, "targets": ["q_proj"], "options": {"target_parameters": ["q_proj.weight"]}},
            {},
            "none",
        ),
    ],
)
def test_refusals(path: str, reason: str, adapter: dict[str, Any], versions: dict[str, str], strategy: str) -> None:
    world = 1 if strategy == "none" else 8
    parallel = {"strategy": strategy, "world": world, "dp": world}
    with pytest.raises(InputError) as caught:
        estimate(plan_of(MIXTRAL, adapter=adapter, parallel=parallel, stack={"versions": {**NEW, **versions}}))
    (problem,) = [one for one in caught.value.problems if one.path == path]
    assert reason in f"{problem.found} {problem.allowed}"


def test_dropout_beside_experts_that_are_left_alone() -> None:
    adapter = {**LORA, "targets": ["q_proj", "v_proj"], "dropout": 0.05}
    assert estimate(plan_of(MIXTRAL, adapter=adapter, stack={"versions": NEW}))


def test_parameters_alone_need_no_modules() -> None:
    adapter = {"kind": "lora", "r": 8, "options": NAMED["options"]}
    assert estimate(plan_of(MIXTRAL, adapter=adapter, stack={"versions": NEW}))
