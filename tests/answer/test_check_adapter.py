"""Adapters and quantised bases that cannot be estimated are refused by their key, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.check import check_model
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.model.build import model_of

PHI3 = {**LLAMA, "model_type": "phi3", "pad_token_id": 0}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
NEW = {"transformers": "5.24.0", "peft": "0.21.2"}
LORA = {"kind": "lora", "targets": "all-linear"}


@pytest.mark.parametrize(
    ("path", "reason", "sections"),
    [
        ("adapter.targets", "fits no module", {"adapter": {"kind": "lora", "targets": "q_proj"}}),
        ("adapter.targets", "pattern", {"adapter": {"kind": "lora", "targets": "("}}),
        ("adapter.targets", "default", {"adapter": {"kind": "lora"}, "model": PHI3}),
        ("adapter.kind", "dequantises", {"adapter": {**LORA, "kind": "dora"}, "quantization": {"kind": "int8"}}),
        ("quantization.kind", "dequantised", {"adapter": LORA, "quantization": {"kind": "mxfp4"}}),
        ("quantization", "adapter", {"quantization": {"kind": "nf4"}}),
        (
            "stack.versions.peft",
            "0.12.0",
            {"adapter": {**LORA, "kind": "dora"}, "stack": {"versions": {"peft": "0.10.0", "torch": "2.4.1"}}},
        ),
        (
            "adapter.options.layers_to_transform",
            "a list of modules alone",
            {"adapter": {**LORA, "targets": "all-linear", "options": {"layers_to_transform": [0]}}},
        ),
        (
            "adapter.options.boft_n_butterfly_factor",
            "extension",
            {"adapter": {**LORA, "kind": "boft", "options": {"boft_n_butterfly_factor": 2}}},
        ),
    ],
)  # fmt: skip
def test_refusals(path: str, reason: str, sections: dict[str, Any]) -> None:
    model = sections.pop("model", LLAMA)
    with pytest.raises(InputError) as caught:
        estimate(plan_of(model, **sections))
    (problem,) = [one for one in caught.value.problems if one.path == path]
    assert reason in f"{problem.found} {problem.allowed}"


@pytest.mark.parametrize("loss", ["fused-linear", "chunked"])
def test_a_fused_head_passes_its_adapter_by(loss: str) -> None:
    stack = {"loss": loss, "kernels": ["liger"], "versions": {"transformers": "5.24.0", "liger": "0.8.0"}}
    adapter = {"kind": "lora", "r": 4, "targets": ["q_proj", "lm_head"]}
    plan = plan_of(task="sft", adapter=adapter, stack=stack)
    with pytest.raises(InputError, match="beside an adapter on the head"):
        check_model(plan, model_of(plan))
    plan = plan_of(task="sft", adapter={**adapter, "targets": ["q_proj"]}, stack=stack)
    check_model(plan, model_of(plan))


def test_an_embedding_has_no_magnitudes_yet() -> None:
    adapter = {"kind": "dora", "r": 4, "targets": ["q_proj", "embed_tokens"]}
    with pytest.raises(InputError, match="names the embedding"):
        estimate(plan_of(adapter=adapter))
    estimate(plan_of(adapter={**adapter, "kind": "lora"}))
    estimate(plan_of(adapter={**adapter, "targets": ["q_proj"]}))
