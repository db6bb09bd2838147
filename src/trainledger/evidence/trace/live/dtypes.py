"""Torch's dtypes and the rows of `facts.dtypes`."""

from __future__ import annotations

from typing import Any

import torch

from trainledger.facts.dtypes import BF16, BOOL, COMPLEX64, DTYPES, FP16, FP32, FP64, INT8, INT32, INT64, UINT8, DType

ROWS: dict[Any, DType] = {
    torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16, torch.int64: INT64,
    torch.uint64: INT64, torch.int32: INT32, torch.int8: INT8, torch.uint8: UINT8, torch.bool: BOOL,
    torch.complex64: COMPLEX64,
}  # fmt: skip
TORCH = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SIXTEEN = (torch.float16, torch.bfloat16)
FLOATS = (*SIXTEEN, torch.float32)


def dtype_of(dtype: Any) -> DType:
    """The row of a torch dtype; of one that is not in the tables, the row of as many bits."""
    row = ROWS.get(dtype)
    if row is not None:
        return row
    by_bytes = {one.bytes_of(1): one for one in (INT64, INT32, BF16, UINT8)}
    return by_bytes.get(dtype.itemsize, DTYPES["fp64"])
