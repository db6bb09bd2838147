"""Kernels that make their results in another order than they return them."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class ResultOrder:
    """An operation, and the places among its results of those that it makes first."""

    operation: str
    first: tuple[int, ...]
    source: Source


RESULT_ORDER = (
    ResultOrder(
        "native_dropout", (1,), Source("PyTorch aten/src/ATen/native/cuda/Dropout.cu", "dropout_cuda", "v2.13")
    ),
    ResultOrder(
        "_scaled_dot_product_cudnn_attention", (6, 7),
        Source("PyTorch aten/src/ATen/native/transformers/cuda/attention.cu", "_cudnn_attention_forward", "v2.13"),
    ),
)  # fmt: skip
