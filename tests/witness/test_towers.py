"""Language models of multimodal types: their layers against the real code without images, and sizes of towers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from tests.witness.compare import mismatches
from trainledger.evidence.trace.live import plan_run
from trainledger.model.build import build
from trainledger.model.counts import total
from trainledger.model.towers import layers_of

TEXT = {
    "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 256,
    "num_key_value_heads": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]},
}  # fmt: skip
TOWER = {"depth": 2, "num_hidden_layers": 2, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 128}
WHOLE = {  # type of the language model: the classes of the whole, and of its config
    "qwen2_vl_text": ("Qwen2VLForConditionalGeneration", "Qwen2VLConfig", {"embed_dim": 32, "hidden_size": 128}),
    "qwen2_5_vl_text": ("Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLConfig", {"hidden_size": 32}),
    "qwen3_vl_moe_text": ("Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeConfig", {"hidden_size": 32}),
    "qwen3_vl_text": ("Qwen3VLForConditionalGeneration", "Qwen3VLConfig", {"hidden_size": 32}),
    "qwen3_5_text": ("Qwen3_5ForConditionalGeneration", "Qwen3_5Config", {"hidden_size": 32}),
    "qwen3_5_moe_text": ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeConfig", {"hidden_size": 32}),
}
DELTA = {
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
    "linear_value_head_dim": 48,
}  # fmt: skip
MORE: dict[str, dict[str, Any]] = {
    "qwen3_5_text": DELTA,
    "qwen3_5_moe_text": {
        **DELTA,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 96,
        "shared_expert_intermediate_size": 160,
    },
    "qwen3_vl_text": {"head_dim": 32},
    "qwen3_vl_moe_text": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 96},
}
SETTINGS: list[dict[str, Any]] = [
    {}, {"kernel": "eager", "batch": 2}, {"weights": "fp32", "autocast": "bf16", "batch": 2},
]  # fmt: skip


@pytest.fixture
def whole(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The type of a language model, whose plans are traced as the multimodal model that has it."""
    kind: str = request.param
    maker, config, tower = WHOLE[kind]

    def of(name: str, **keys: Any) -> Any:
        assert name == kind
        return getattr(transformers, config)(text_config={**keys, "use_cache": False}, vision_config={**TOWER, **tower})

    class Whole:
        @staticmethod
        def from_config(made: Any, **how: Any) -> Any:
            return getattr(transformers, maker)._from_config(made, **how)

    monkeypatch.setattr(transformers.AutoConfig, "for_model", of)
    monkeypatch.setattr(plan_run, "_class", lambda plan, package: Whole)
    return kind


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize("whole", WHOLE, indirect=True)
def test_a_layer_agrees_with_the_real_code(whole: str, setting: int) -> None:
    config = {"model_type": whole, **TEXT, **MORE.get(whole, {})}
    assert mismatches(config, prefix="model.language_model.layers.", sequence=128, **SETTINGS[setting]) == []


@pytest.mark.parametrize("kind", WHOLE)
def test_parameters_are_those_beside_the_tower(kind: str) -> None:
    maker, config, tower = WHOLE[kind]
    with torch.device("meta"):
        made = getattr(transformers, config)(
            text_config={**TEXT, **MORE.get(kind, {})}, vision_config={**TOWER, **tower}
        )
        real = getattr(transformers, maker)(made)
    counted = {id(one): one.numel() for name, one in real.named_parameters() if "visual" not in name}
    assert total(build({"model_type": kind, **TEXT, **MORE.get(kind, {})})) == sum(counted.values())


TOWERS = {
    "clip_vision_model": "CLIPVisionModel", "siglip_vision_model": "SiglipVisionModel", "pixtral": "PixtralVisionModel",
    "internvl_vision": "InternVLVisionModel", "llama4_vision_model": "Llama4VisionModel",
    "qwen2_vl_vision": "Qwen2VisionTransformerPretrainedModel", "qwen3_vl_vision": "Qwen3VLVisionModel",
    "qwen2_5_vl_vision": "Qwen2_5_VisionTransformerPretrainedModel", "idefics3_vision": "Idefics3VisionTransformer",
    "smolvlm_vision": "SmolVLMVisionTransformer", "gemma4_audio": "Gemma4AudioModel",
    "gemma4_vision": "Gemma4VisionModel",
}  # fmt: skip


@pytest.mark.parametrize("kind", TOWERS)
def test_a_tower_has_at_least_its_layers(kind: str) -> None:
    """And not much more: patches, positions, norms, biases, a projector."""
    config = transformers.AutoConfig.for_model(kind)
    folder = type(config).__module__.replace("configuration", "modeling")
    maker = getattr(import_module(folder), TOWERS[kind])
    with torch.device("meta"):
        real = sum(one.numel() for one in maker._from_config(config).parameters())
    assert real / 1.5 < layers_of(config.to_dict()) < real
    assert layers_of({"model_type": kind}) == layers_of(config.to_dict())
