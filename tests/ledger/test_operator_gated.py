"""Activations and gated layers against Liger's published rows (all_benchmark_data.csv, 2120862b)."""

from __future__ import annotations

import pytest

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

TILED = {"bsz": 2, "hidden_size": 2048, "intermediate_size": 4096, "hidden_act": "silu", "num_shards": 4, "T": 4096}
GEGLU = {"bsz": 8, "hidden_size": 4096, "intermediate_size": 11008, "hidden_act": "gelu_pytorch_tanh", "T": 2048}
MEGATRON = {"S": 2048, "B": 4, "ffn_local": 4096}
ALL: tuple[Row, ...] = (
    ("tiled_swiglu", "huggingface", TILED, 721_682_432),
    ("tiled_swiglu", "liger", TILED, 570_687_488),
    ("tiled_swiglu", "liger_tiled", TILED, 377_749_504),
    ("tiled_swiglu", "deepspeed_tiled", TILED, 394_526_720),
    ("geglu", "liger", GEGLU, 2_669_936_640),
    ("relu_squared", "liger", {"M": 4096, "N": 16384}, 163_840),
    ("relu_squared", "torch", {"M": 4096, "N": 16384}, 262_144),
)
FORWARD: tuple[Row, ...] = (
    ("tiled_swiglu", "huggingface", TILED, 402_915_328),
    ("tiled_swiglu", "liger", TILED, 335_806_464),
    ("tiled_swiglu", "liger_tiled", TILED, 184_811_520),
    ("tiled_swiglu", "deepspeed_tiled", TILED, 176_422_912),
    ("geglu", "liger", GEGLU, 1_638_137_856),
    ("geglu", "huggingface", GEGLU, 1_998_848_000),
)
SUMMED: tuple[Row, ...] = (
    ("megatron_swiglu", "liger", MEGATRON, 402_654_208),
    ("megatron_swiglu", "liger_in_place", MEGATRON, 268_436_480),
    ("megatron_swiglu", "torch", MEGATRON, 469_763_072),
    ("megatron_swiglu", "megatron", MEGATRON, 335_545_344),
)
NUMBER = 512  # the sum's own gradient, which the caller may still name


@named(ALL)
@pytest.mark.parametrize("passes", ["forward+backward", "backward"])
def test_both_passes(row: Row, passes: str) -> None:
    assert difference(row, "bf16", "0.6.3", "rtx4090", passes) == 0


@named(FORWARD)
def test_a_forward_alone_holds_no_gradients(row: Row) -> None:
    assert difference(row, "bf16", "0.6.3", "rtx4090", "forward") == 0


@named(SUMMED)
def test_products_whose_sum_is_the_loss(row: Row) -> None:
    assert -NUMBER <= difference(row, None, "0.8.1", "h100-80gb") <= 0


def test_one_shard_runs_the_whole_layer() -> None:
    """With one part, backward runs on all tokens at once: twice as many as with two."""
    peaks = [
        operator_peak(OperatorRun("tiled_swiglu", "liger_tiled", {**TILED, "num_shards": shards}, "bf16"))
        for shards in (1, 2)
    ]
    assert peaks[0] is not None
    assert peaks[1] is not None
    assert peaks[0] > peaks[1]
