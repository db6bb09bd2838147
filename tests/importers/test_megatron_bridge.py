"""Megatron-Bridge's configuration and NeMo 2's, by the arguments that their keys stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.facts.import_bridge import ROWS, argument_of, row_of
from trainledger.importers import megatron_bridge
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.piece import Piece

MODEL = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 32, "vocab_size": 100}
TRAIN = {"micro_batch_size": 1, "global_batch_size": 8}


def piece(data: dict[str, Any]) -> Piece:
    whole = {"model": MODEL, "train": TRAIN, "mixed_precision": "bf16_mixed", **data}
    return megatron_bridge.extract(Input("b.yaml", "", Document(whole, {(): "b.yaml"})), Context())


def value(data: dict[str, Any], path: str) -> Any:
    found = piece(data)
    assert not found.problems
    held = found.given.get(path) or found.filled.get(path)
    return held.value if held else None


@pytest.mark.parametrize(
    "data, path, found",
    [
        ({}, "model.vocab_size", 100),
        ({"model": {**MODEL, "should_pad_vocab": True}}, "model.vocab_size", 128),
        ({}, "stack.loss", "vocab-parallel-fused"),
        ({"model": {**MODEL, "cross_entropy_loss_fusion": False}}, "stack.loss", "vocab-parallel"),
        ({}, "precision.gradients", "fp32"),
        ({"mixed_precision": {"bf16": True, "grad_reduce_in_fp32": False}}, "precision.gradients", "bf16"),
        ({"mixed_precision": "fp16-mixed"}, "precision.gradients", "fp16"),
        ({"ddp": {"grad_reduce_in_fp32": False}}, "precision.gradients", "fp32"),
        ({"ddp": {"use_distributed_optimizer": True}}, "parallel.strategy", "megatron-distopt"),
        ({"dist": {"use_megatron_fsdp": True}}, "parallel.strategy", "megatron-fsdp"),
        ({"model": {**MODEL, "add_bias_linear": True}}, "model.add_bias_linear", True),
        ({"model": {**MODEL, "share_embeddings_and_output_weights": False}}, "model.tie_word_embeddings", False),
        ({"model": {**MODEL, "activation_func": {"_target_": "torch.nn.functional.silu"}}}, "model.hidden_act", "silu"),
        ({"trainer": {"devices": 8, "num_nodes": 4}}, "parallel.world", 32),
        ({"trainer": {"devices": 8, "num_nodes": 4}}, "stack.framework", "nemo"),
        ({"peft": {"_target_": "megatron.bridge.peft.dora.DoRA"}}, "adapter.r", 32),
        ({"dataset": {"seq_length": 64}, "model": {**MODEL, "seq_length": None}}, "batch.sequence", 64),
        ({"checkpoint": {"save": "/x", "async_save": True}}, "save.asynchronous", True),
        ({"checkpoint": {"save": "/x", "save_optim": False}}, "save.optimizer", False),
        ({"checkpoint": {"async_save": True}}, "save.asynchronous", None),
        ({"checkpoint": {"save": "/x", "most_recent_k": 3}}, "save.limit", 3),
        ({"checkpoint": {"save": "/x", "most_recent_k": -1}}, "save.limit", None),
        ({"checkpoint": {"most_recent_k": 3}}, "save.limit", None),
    ],
)  # fmt: skip
def test_what_a_key_means(data: dict[str, Any], path: str, found: Any) -> None:
    assert value(data, path) == found


def test_problems_have_the_files_own_keys() -> None:
    text = str(piece({"model": {"num_query_groups": "x", "context_parallel_size": 2}}).problems)
    assert "model.num_query_groups" in text
    assert "run_config.yaml" in text
    assert "--" not in text.replace("--set", "")


def test_what_is_not_known_has_its_nearest() -> None:
    found = piece({"model": {**MODEL, "num_layerz": 3}})
    assert [(one.path, one.near) for one in found.unknown] == [("model.num_layerz", "model.num_layers")]


def test_rows_and_arguments_agree() -> None:
    assert argument_of("model.tensor_model_parallel_size") == "--tensor-model-parallel-size"
    assert argument_of("logger.log_interval") == ""
    assert row_of("model.num_layers") is not None
    assert len({row.name for row in ROWS}) == len(ROWS)


KEYS = st.sampled_from(["num_layers", "activation_func", "fp8", "vocab_size", "seq_length", "x", "recompute_modules"])
LEAF = st.one_of(st.integers(-3, 10**19), st.none(), st.text(max_size=6), st.booleans(), st.floats(), st.just([]))
NESTED = st.recursive(LEAF, lambda inner: st.dictionaries(st.one_of(KEYS, st.just("_target_")), inner, max_size=3))


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["model", "train", "peft", "mixed_precision", "ddp", "trainer", "env_vars"]), NESTED
    )
)
def test_any_mapping_makes_a_piece(data: dict[str, Any]) -> None:
    found = Input("b.yaml", "", Document(data, {(): "b.yaml"}))
    megatron_bridge.identify(found)
    assert isinstance(megatron_bridge.extract(found, Context()), Piece)
