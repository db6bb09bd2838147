"""LitGPT's model of a plan: its fused layer, its adapters, what it quantises, what it keeps as buffers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.problems import InputError
from trainledger.facts.dtypes import FP16, INT64
from trainledger.model.build import model_of
from trainledger.model.counts import total, tuned
from trainledger.model.litgpt import unknown_targets
from trainledger.model.program import Attention, FusedLowRank, Linear, LowRank, Model, Repeat

PHI = {"model_type": "phi", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
       "num_attention_heads": 32, "vocab_size": 51200, "partial_rotary_factor": 0.5}  # fmt: skip


def made(model: dict[str, Any], targets: list[str] | None = None, **sections: Any) -> Model:
    adapter = {"kind": "lora", "r": 8, "targets": targets, "dtype": "bf16"} if targets else None
    stack = {"framework": "litgpt", "loss": "chunked", "versions": {}}
    return model_of(plan_of(model, adapter=adapter, stack=stack, **sections))


def test_counts_are_those_of_the_published_table() -> None:
    """1,572,864 and 4,194,304 trainable parameters: the resource tables of LitGPT's tutorials."""
    assert tuned(made(PHI, ["q_proj", "v_proj"])) == 1_572_864
    llama = {**LLAMA, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "vocab_size": 32000,
             "num_attention_heads": 32, "num_key_value_heads": 32}  # fmt: skip
    assert tuned(made(llama, ["q_proj", "v_proj"])) == 4_194_304


def test_as_many_parameters_as_the_transformers_class() -> None:
    for model in (LLAMA, PHI):
        assert total(made(model)) == total(model_of(plan_of(model)))


def test_only_what_switches_turn_on_is_adapted() -> None:
    ops = {op.name: op.spec for op in made(LLAMA, ["q_proj", "k_proj", "v_proj", "down_proj", "lm_head"]).blocks[0].ops
           if isinstance(op.spec, Linear)}  # fmt: skip
    assert isinstance(ops["mlp.fc_1"].adapter, LowRank)
    assert isinstance(ops["mlp.proj"].adapter, LowRank)
    assert ops["attn.proj"].adapter is None
    fused = ops["attn.attn"].adapter
    assert isinstance(fused, FusedLowRank)
    assert not fused.padded


def test_columns_that_are_adapted_are_a_buffer_of_every_layer() -> None:
    buffers = made(LLAMA, ["q_proj", "v_proj"]).buffers
    places = [one for one in buffers if one.dtype is INT64]
    assert [one.elements for one in places] == [256 + 128] * LLAMA["num_hidden_layers"]
    assert not [one for one in made(LLAMA, ["q_proj", "k_proj", "v_proj"]).buffers if one.dtype is INT64]


def test_the_head_is_quantised_too_from_a_copy_in_fp16() -> None:
    model = made(LLAMA, ["q_proj"], quantization={"kind": "nf4"})
    packings = [op.spec.weight.packed for op in model.head.ops if isinstance(op.spec, Linear)]
    assert [one.loaded for one in packings if one] == [FP16]
    assert model.embeddings[0].packed is None


def test_grouped_heads_are_repeated_before_attention() -> None:
    ops = made(LLAMA).blocks[0].ops
    assert [op.spec.heads for op in ops if isinstance(op.spec, Repeat)] == [4, 4]
    assert all(op.spec.heads == op.spec.kv_heads for op in ops if isinstance(op.spec, Attention))


def test_gemma_2_looks_back_over_a_window_in_every_second_layer() -> None:
    gemma = {**LLAMA, "model_type": "gemma2", "head_dim": 64, "sliding_window": 128}
    blocks = made(gemma).blocks
    windows = [[op.spec.window for op in block.ops if isinstance(op.spec, Attention)] for block in blocks]
    assert windows == [[128], [0]]
    assert [block.layers for block in blocks] == [(0, 2), (1,)]


def test_a_family_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match=r"model\.model_type"):
        made({**LLAMA, "model_type": "opt"})


def test_targets_without_a_switch() -> None:
    assert unknown_targets(["q_proj", "conv", "lora_head"]) == ["conv"]
