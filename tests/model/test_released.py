"""Models as a release of Transformers or an engine runs them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.facts.dtypes import FP32, DType
from trainledger.model.build import model_of
from trainledger.model.counts import total
from trainledger.model.program import GroupRouter, Model, Role

PLAIN = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256, "intermediate_size": 160,
}  # fmt: skip
KEYS = {
    **PLAIN, "kv_lora_rank": 48, "q_lora_rank": 40, "v_head_dim": 16, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 32,
    "first_k_dense_replace": 1, "n_shared_experts": 1,
}  # fmt: skip
BARE = {"num_key_value_heads": 4}
FAMILIES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")


def built(family: str, release: str, **sections: Any) -> Model:
    keys = {"model_type": family, **KEYS, **({} if family in FAMILIES else BARE)}
    return model_of(plan_of(keys, stack={"versions": {"transformers": release}}, **sections))


def routers(model: Model) -> set[DType | None]:
    """The dtypes of routers' weights, as the layers list them and as their operations read them."""
    read = [op.spec.weight for block in model.blocks for op in block.ops if isinstance(op.spec, GroupRouter)]
    kept = [weight for block in model.blocks for weight in block.weights if weight.role is Role.ROUTER]
    assert read == kept
    assert kept
    return {weight.dtype for weight in kept}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("release", "dtype"), [("5.18.0", None), ("5.23.1", None), ("5.24.0", FP32), ("5.30.0", FP32)])
def test_a_router_stays_fp32_since_one_release(family: str, release: str, dtype: DType | None) -> None:
    assert routers(built(family, release)) == {dtype}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("release", ["4.57.1", "5.0.0", "5.17.0"])
def test_older_layers_are_counted_and_not_covered(family: str, release: str) -> None:
    old = built(family, release)
    assert all("5.18" in block.unknown and not block.ops for block in old.blocks)
    assert total(old) == total(built(family, "5.24.0"))


@pytest.mark.parametrize(("release", "dense", "routed"), [("5.5.0", 0, 0), ("5.12.1", 1, 0), ("5.13.0", 1, 1)])
def test_gemma_4_with_experts_is_covered_later(release: str, dense: bool, routed: bool) -> None:
    small = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256}
    plain = {**small, "model_type": "gemma4_text", "hidden_size_per_layer_input": 0}
    mixed = {**plain, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32}
    for keys, covered in ((plain, dense), (mixed, routed)):
        model = model_of(plan_of(keys, stack={"versions": {"transformers": release}}))
        assert all(bool(block.ops) is bool(covered) for block in model.blocks)


def test_deepspeed_casts_the_whole_model() -> None:
    assert routers(built("deepseek_v3", "5.24.0", parallel={"strategy": "zero3", "world": 8})) == {None}


def test_other_families_are_left_alone() -> None:
    keys = {"model_type": "mixtral", **KEYS, "num_key_value_heads": 2, "n_routed_experts": 4}
    old, new = (model_of(plan_of(keys, stack={"versions": {"transformers": one}})) for one in ("5.0.0", "5.24.0"))
    assert old == new


@pytest.mark.parametrize(("release", "high"), [("4.57.1", True), ("5.0.0", False), ("5.12.0", False), ("5.13.0", True)])
def test_rotary_tables_of_olmo3_are_cast_for_a_time(release: str, high: bool) -> None:
    rotary = built("olmo3", release).rotary
    assert rotary is not None
    assert rotary.high is high


def test_language_models_of_images_have_releases_of_their_own() -> None:
    """Whose family is another's."""
    old, new = (built("qwen2_5_vl_text", one) for one in ("5.16.0", "5.17.0"))
    assert all("5.17" in block.unknown for block in old.blocks)
    assert new.family == built("qwen2", "5.16.0").family
    assert not any(block.unknown for block in (*new.blocks, *built("qwen2", "5.16.0").blocks))


@pytest.mark.parametrize("family", ["stablelm", "persimmon", "nemotron", "olmo"])
def test_layers_of_other_code_are_refused_by_release(family: str) -> None:
    def refusal(release: str) -> str:
        keys = {**KEYS, **BARE, "model_type": family}
        with pytest.raises(InputError) as caught:
            estimate(plan_of(keys, stack={"versions": {"transformers": release}}))
        return str(caught.value)

    assert "its layers are covered from Transformers 5.4 on" in refusal("5.3.0")
    keys = {**PLAIN, **BARE, "model_type": family}
    assert estimate(plan_of(keys, stack={"versions": {"transformers": "5.24.0"}})).peak.allocated.expected > 0


@pytest.mark.parametrize(("kind", "since"), [("granitemoe", "5.18"), ("exaone", "5.24"), ("lfm2", "5.18")])
def test_types_that_run_since_a_release(kind: str, since: str) -> None:
    old, new = (built(kind, release) for release in ("5.12.0", "5.24.0"))
    assert all(f"covered from Transformers {since} on" in block.unknown for block in old.blocks)
    assert not any(block.unknown for block in new.blocks)
