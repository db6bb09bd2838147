"""torchtitan's model of a plan: what differs from the Transformers class, by version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.model.counts import total
from trainledger.model.program import Attention, Join, Linear, Low, Model, Norm, NormKind, Repeat, Rope, Scales, Split

OLD, NEW = "5940ddeb532c", "0.2.2"
QWEN = {**LLAMA, "model_type": "qwen3", "head_dim": 64}


def made(model: dict[str, Any] = LLAMA, version: str = OLD, **sections: Any) -> Model:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": version}}
    return model_of(plan_of(model, stack=stack, **sections))


def specs(model: Model, kind: type) -> list[Any]:
    ops = (*model.blocks[0].ops, *model.head.ops)
    return [op.spec for op in ops if isinstance(op.spec, kind)]


def low(compute: str = "fp8", recompute: Any = "none", **fp8: Any) -> Low | None:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": OLD}, "recompute": recompute}
    model = model_of(plan_of(precision={"compute": compute, "fp8": fp8 or None}, stack=stack))
    *inside, head = specs(model, Linear)
    assert head.low is None
    found = {one.low for one in inside}
    assert len(found) == 1
    return found.pop()


def test_as_many_parameters_as_the_transformers_class() -> None:
    assert total(made()) == total(model_of(plan_of()))


@pytest.mark.parametrize("model, join, width", [(LLAMA, Join.COMPLEX, 64), (QWEN, Join.CACHE, 128)])
def test_queries_and_keys_turn_by_one_table(model: dict[str, Any], join: Join, width: int) -> None:
    found = made(model)
    assert [one.join for one in specs(found, Rope)] == [join]
    assert [one.elements for one in found.buffers] == [512 * width]
    assert found.rotary is None


@pytest.mark.parametrize("version, norm, repeats", [(OLD, NormKind.RMS, 2), (NEW, NormKind.RMS_NATIVE, 0)])
def test_norms_and_repeated_heads_by_version(version: str, norm: NormKind, repeats: int) -> None:
    model = made(version=version)
    assert {one.kind for one in specs(model, Norm)} == {norm}
    assert len(specs(model, Repeat)) == repeats
    assert [one.kv_heads for one in specs(model, Attention)] == [4 if repeats else 2]


def test_recipes_say_how_layers_inside_blocks_cast() -> None:
    assert low("bf16") is None
    plain, rows, gathered = low(), low(recipe="rowwise"), low(recipe="tensorwise", all_gather=True)
    assert plain
    assert (plain.scales, plain.again, plain.gathered, plain.early) == (Scales.TENSOR, False, False, False)
    assert rows
    assert rows.again
    assert gathered
    assert gathered.gathered
    assert low("mxfp8", recipe="mxfp8_cublas_rceil") == low("mxfp8")


def test_the_prototype_keeps_cast_inputs_only_without_recompute() -> None:
    kept = [low(recompute=one, kernels="float8nocompile") for one in ("none", {"kind": "full"})]
    assert [bool(one and one.early) for one in kept] == [True, False]


def test_weights_that_come_cast_are_the_blocks_own() -> None:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": OLD}}
    fp8 = {"compute": "fp8", "fp8": {"recipe": "tensorwise", "all_gather": True}}
    block = model_of(plan_of(precision=fp8, stack=stack)).blocks[0]
    assert {one.name for one in block.weights if one.gathered is None} == {
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    }


def test_products_of_4_bits_keep_both_casts_and_no_policy_knows_them() -> None:
    found = low("nvfp4")
    assert found
    assert (found.dtype.name, found.early, found.again, found.listed) == ("nvfp4", True, False, False)


FUSED = "2026-06-24"


@pytest.mark.parametrize("model", [LLAMA, QWEN, {**LLAMA, "attention_bias": True}])
def test_one_layer_makes_queries_keys_and_values_since_2026(model: dict[str, Any]) -> None:
    before, after = made(model, "2026-06-09"), made(model, FUSED)
    assert total(after) == total(before)
    assert len(specs(before, Linear)) - len(specs(after, Linear)) == 2
    (parts,) = specs(after, Split)
    heads, keys = 256, 128
    assert [one[0].size * one[1].size for one in parts.parts] == [heads, keys, keys]
    assert [one.elements for one in after.blocks[0].weights if "wqkv.weight" in one.name] == [256 * (heads + 2 * keys)]


def test_tensor_parallel_ranks_keep_three_projections() -> None:
    parallel = {"strategy": "fsdp2", "dp": 1, "tp": 2, "sp": True}
    assert not specs(made(LLAMA, FUSED, parallel=parallel), Split)


def test_a_family_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match=r"model\.model_type"):
        made({**LLAMA, "model_type": "gpt_neox"})
