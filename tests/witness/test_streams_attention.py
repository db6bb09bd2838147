"""One layer under every attention kernel, storage by storage against the real code: grouped and lone key heads, heads
that are padded, windows whose mask is written out at every call."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.compare import mismatches

SMALL = {
    "hidden_size": 256, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 64, "pad_token_id": None,
}  # fmt: skip
ALL, LONE = {"num_key_value_heads": 4}, {"num_key_value_heads": 1}
WINDOW = {"model_type": "mistral", "sliding_window": 16}

SHAPES: dict[str, dict[str, Any]] = {
    "grouped": {"model_type": "llama"},
    "all": {"model_type": "llama", **ALL},
    "lone": {"model_type": "llama", **LONE},
    "padded": {"model_type": "llama", "head_dim": 60},
    "window": WINDOW,
    "window-all": {**WINDOW, **ALL},
    "window-lone": {**WINDOW, **LONE},
}
RUNS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "bf16-batch": {"batch": 2},
    "fp32-batch": {"weights": "fp32", "batch": 2},
    "autocast": {"weights": "fp32", "autocast": "bf16"},
    "autocast-batch": {"weights": "fp32", "autocast": "bf16", "batch": 2},
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn", "math"])
@pytest.mark.parametrize("shape", ["grouped", "all", "window"])
def test_every_kernel(shape: str, kernel: str, run: str) -> None:
    assert mismatches({**SMALL, **SHAPES[shape]}, kernel=kernel, **RUNS[run]) == []


@pytest.mark.parametrize("run", ["bf16", "autocast-batch"])
@pytest.mark.parametrize("kernel", ["flash", "efficient", "math"])
@pytest.mark.parametrize("shape", ["lone", "padded", "window-all", "window-lone"])
def test_other_shapes(shape: str, kernel: str, run: str) -> None:
    assert mismatches({**SMALL, **SHAPES[shape]}, kernel=kernel, **RUNS[run]) == []


@pytest.mark.parametrize("batch", [1, 2])
def test_a_mask_whose_rows_are_not_aligned_is_padded(batch: int) -> None:
    assert mismatches({**SMALL, **SHAPES["window"]}, kernel="efficient", sequence=36, batch=batch) == []
