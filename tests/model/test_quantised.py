"""Bytes of quantised weights, which layers are quantised, by kind and release."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.dims import elements
from trainledger.model.build import model_of
from trainledger.model.program import Linear, Model, Weight
from trainledger.model.quantised import stored

OUT, IN = 640, 256  # the feed-forward's first matrix
COUNT = OUT * IN
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 512}


def model(kind: str, keys: dict[str, Any] = LLAMA, versions: dict[str, str] | None = None, **more: Any) -> Model:
    quantization = {"kind": kind, **more}
    stack = {"versions": {"torch": "2.4.1", "transformers": "5.24.0", **(versions or {})}}
    return model_of(plan_of(keys, quantization=quantization, stack=stack, trainable="none"))


def weights(found: Model) -> dict[str, Weight]:
    named = [*found.embeddings, *found.head.weights, *(one for block in found.blocks for one in block.weights)]
    return {weight.name: weight for weight in named}


def bytes_of(weight: Weight) -> dict[str, int]:
    return {one.name: one.dtype.bytes_of(elements(one.dims)) * one.copies for one in stored(weight)}


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("nf4", {}, {"packed": COUNT // 2, "absmax": COUNT // 64 * 4, "code": 64}),
        (
            "fp4",
            {"double": True},
            {
                "packed": COUNT // 2, "code": 64, "offset": 4, "code of scales": 1024,
                "absmax of scales": COUNT // 64 // 256 * 4, "quantised absmax": COUNT // 64,
            },
        ),
        ("int8", {}, {"CB": COUNT, "SCB": 4 * OUT}),
        (
            "gptq4",
            {"group_size": 64},
            {"qweight": COUNT // 2, "qzeros": COUNT // 64 // 2, "scales": COUNT // 64 * 2, "g_idx": 4 * IN},
        ),
        ("gptq8", {"group_size": None}, {"qweight": COUNT, "qzeros": OUT, "scales": 2 * OUT, "g_idx": 4 * IN}),
        ("gptq4", {"group_size": -1}, {"qweight": COUNT // 2, "qzeros": OUT // 2, "scales": 2 * OUT, "g_idx": 4 * IN}),
        ("awq4", {"group_size": 128}, {"qweight": COUNT // 2, "qzeros": OUT, "scales": 4 * OUT}),
        ("fp8", {}, {"weight": COUNT, "weight_scale_inv": 4 * (OUT // 128) * (IN // 128)}),
    ],
)  # fmt: skip
def test_tensors_of_a_weight(kind: str, more: dict[str, Any], expected: dict[str, int]) -> None:
    assert bytes_of(weights(model(kind, **more))["mlp.gate_proj.weight"]) == expected


def test_before_046_the_code_of_scales_is_one_for_the_process() -> None:
    found = weights(model("nf4", double=True, versions={"bitsandbytes": "0.43.3"}))["mlp.gate_proj.weight"]
    assert "code of scales" not in bytes_of(found)


def test_embeddings_norms_and_the_head_keep_their_precision() -> None:
    packed = {name for name, weight in weights(model("nf4")).items() if weight.packed}
    projections = {f"self_attn.{name}_proj.weight" for name in "qkvo"}
    assert packed == projections | {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}


def test_experts_are_quantised_where_they_are_layers_of_their_own() -> None:
    before, after = (weights(model("nf4", MIXTRAL, {"transformers": one})) for one in ("4.48.1", "5.24.0"))
    name = "mlp.experts.gate_up_proj"
    assert after[name].packed is None
    (packed, absmax, code) = stored(before[name])
    assert (packed.copies, elements(packed.dims)) == (2 * 4, 512 * 256 // 2)
    assert absmax.copies == code.copies == 2 * 4


def test_operations_read_the_weights_that_are_listed() -> None:
    for block in model("gptq4").blocks:
        read = {op.spec.weight for op in block.ops if isinstance(op.spec, Linear)}
        assert read <= set(block.weights)
