"""Where adapters go, what they add, what is trained."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.model.build import model_of
from trainledger.model.counts import kinds, total, tuned
from trainledger.model.program import Linear, Model, Role

HIDDEN, FFN, KV, LAYERS, VOCAB = 256, 640, 128, 3, 1024
SQUARE, NARROW, WIDE = HIDDEN + HIDDEN, HIDDEN + KV, HIDDEN + FFN
EVERY = 2 * SQUARE + 2 * NARROW + 3 * WIDE


def model(adapter: dict[str, Any], **keys: Any) -> Model:
    return model_of(plan_of({**LLAMA, **keys}, adapter={"kind": "lora", "r": 8, **adapter}))


@pytest.mark.parametrize(
    ("adapter", "count"),
    [
        ({"targets": ["q_proj", "v_proj"]}, 8 * LAYERS * (SQUARE + NARROW)),
        ({}, 8 * LAYERS * (SQUARE + NARROW)),  # PEFT's own targets for llama
        ({"targets": "all-linear"}, 8 * LAYERS * EVERY),
        ({"targets": ["self_attn.o_proj"]}, 8 * LAYERS * SQUARE),
        ({"targets": r"model\.layers\.(0|2)\.mlp\.down_proj"}, 8 * 2 * WIDE),
        ({"targets": r"mlp\.down_proj"}, 0),  # a text is the pattern of a whole path
        ({"targets": ["o_proj"], "options": {"layers_to_transform": [1]}}, 8 * SQUARE),
        ({"targets": "all-linear", "options": {"layers_to_transform": [1]}}, 8 * EVERY),
        ({"targets": ["o_proj"], "options": {"rank_pattern": {r"layers\.0\..*o_proj": 32}}}, (32 + 8 + 8) * SQUARE),
        ({"targets": "all-linear", "options": {"exclude_modules": ["down_proj"]}}, 8 * LAYERS * (EVERY - WIDE)),
        ({"targets": ["o_proj"], "options": {"lora_bias": True}}, LAYERS * (8 * SQUARE + HIDDEN)),
        ({"targets": ["o_proj"], "kind": "dora"}, LAYERS * (8 * SQUARE + HIDDEN)),
        ({"targets": ["embed_tokens", "lm_head"]}, 2 * 8 * (VOCAB + HIDDEN)),
        ({"targets": ["o_proj"], "train_extra": ["lm_head"]}, 8 * LAYERS * SQUARE + VOCAB * HIDDEN),
        # the end of a module's path is meant, be it a part of its name
        ({"targets": ["o_proj"], "train_extra": ["norm"]}, 8 * LAYERS * SQUARE + (2 * LAYERS + 1) * HIDDEN),
        ({"targets": ["o_proj"], "train_extra": ["model.norm"]}, 8 * LAYERS * SQUARE + HIDDEN),
        ({"targets": ["o_proj"], "train_extra": ["attention_layernorm"]}, 8 * LAYERS * SQUARE + LAYERS * HIDDEN),
        ({"targets": ["o_proj"], "options": {"use_rslora": True}}, 8 * LAYERS * SQUARE),
    ],
)
def test_trained_elements(adapter: dict[str, Any], count: int) -> None:
    found = model(adapter)
    assert tuned(found) == count
    assert total(found) - count == total(model({"targets": "nothing"}))


def test_layers_that_are_not_adapted_alike_are_blocks_of_their_own() -> None:
    found = model({"targets": ["q_proj"], "options": {"layers_to_transform": [0, 2]}})
    assert [block.layers for block in found.blocks] == [(0, 2), (1,)]


def test_biases() -> None:
    """Of the adapted layers, or of all modules."""
    for word, count in (("none", 0), ("lora_only", HIDDEN), ("all", 2 * HIDDEN + 2 * KV)):
        found = model({"targets": ["o_proj"], "options": {"bias": word}}, attention_bias=True)
        assert tuned(found) == LAYERS * (8 * SQUARE + count)


def test_the_original_of_a_module_trained_whole_stays() -> None:
    found = model({"targets": ["o_proj"], "train_extra": ["embed_tokens"]}, tie_word_embeddings=True)
    names = [weight.name for weight in found.embeddings]
    assert names == ["model.embed_tokens.weight", "model.embed_tokens.modules_to_save.default.weight"]
    (head,) = [op.spec for op in found.head.ops if isinstance(op.spec, Linear)]
    assert head.weight == found.embeddings[0]  # the tied head reads the original


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_s_copy_is_a_head(tied: bool) -> None:
    """A linear layer of its own: bitsandbytes' 8-bit states, from which the Trainer keeps embeddings, take it."""
    found = model({"targets": ["o_proj"], "train_extra": ["embed_tokens", "lm_head"]}, tie_word_embeddings=tied)
    roles = {weight.name.split(".modules")[0]: weight.role for weight, _ in kinds(found) if "to_save" in weight.name}
    assert roles == {"model.embed_tokens": Role.EMBEDDING, "lm_head": Role.HEAD}


def test_fused_and_transposed_layers() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 512, "n_positions": 64}
    found = model_of(plan_of(gpt2, adapter={"kind": "lora", "r": 4}))
    assert tuned(found) == 2 * 4 * (64 + 3 * 64)
