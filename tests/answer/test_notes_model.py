"""What a type is estimated as, and towers beside a language model."""

from __future__ import annotations

from typing import Any

from tests.plans import plan_of
from trainledger.answer.notes_model import model_notes, towers_beside, towers_uncounted
from trainledger.answer.thumb import thumb
from trainledger.importers.hf_config import model_keys
from trainledger.model.build import build

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 256,
    "num_attention_heads": 4,
}  # fmt: skip


def notes(kind: str, **versions: str) -> list[str]:
    plan = plan_of({"model_type": kind}, stack={"versions": {"transformers": "5.24.0", **versions}})
    return list(model_notes(plan, build(plan.keys())))


def test_kimi_is_said_to_be_estimated_as_v3() -> None:
    assert "deepseek_v3" in notes("kimi_k2")[0]
    assert not notes("deepseek_v3")


def test_linear_attention_is_said_to_be_counted_without_packages() -> None:
    for kind in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        assert "for want of flash-linear-attention and causal-conv1d" in notes(kind)[0]
    both = notes("qwen3_next", **{"fla-core": "0.6.0", "causal-conv1d": "1.5.0"})
    assert "the kernels of flash-linear-attention and causal-conv1d" in both[0]
    assert not notes("qwen3")


def towered(**tower: Any) -> tuple[str, str]:
    keys, _ = model_keys({"model_type": "llava", "text_config": LLAMA, "vision_config": tower})
    plan = plan_of(keys)
    (note,), (beside,) = towers_uncounted(plan), towers_beside(plan)
    return note, beside


def test_a_known_tower_is_named_in_bytes() -> None:
    """CLIP's: 24 layers of 4 x 1024^2 + 2 x 1024 x 4096 in bf16, which stand beside the verdict, too."""
    tower = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
    note, beside = towered(model_type="clip_vision_model", **tower)
    size = "at least 301,989,888 parameters, 0.56 GiB of weights in bf16"
    assert size in note
    assert size in beside
    assert "model.vision_config" in beside


def test_the_rule_of_thumb_names_it_too() -> None:
    keys, _ = model_keys({"model_type": "llava", "text_config": LLAMA, "vision_config": {"model_type": "mystery"}})
    assert any("model.vision_config" in reason for reason in thumb(plan_of(keys)).verdict.reasons)


def test_a_tower_without_a_type_is_that_of_the_whole() -> None:
    """As config.json files of Qwen2.5-VL have it, whose keys stand beside those of the language model."""
    flat = {**LLAMA, "model_type": "qwen2_5_vl", "vision_config": {"hidden_size": 1280}}
    keys, _ = model_keys(flat)
    matrices = 32 * (4 * 1280**2 + 3 * 1280 * 3420)
    assert f"at least {matrices:,} parameters" in next(towers_uncounted(plan_of(keys)))


def test_another_is_named_without() -> None:
    for tower in ({"model_type": "mystery"}, {"model_type": "clip_vision_model", "hidden_size": "wide"}):
        assert all("not known" in one for one in towered(**tower))


def test_a_language_model_alone_has_none() -> None:
    assert not list(towers_uncounted(plan_of(LLAMA)))
