"""What kernels allocate inside themselves, against the formulas' own walk of the same kernels."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP16, FP32, DType
from trainledger.facts.kernel_sets import MULTIPROCESSORS
from trainledger.facts.kernels_attention import Kernel
from trainledger.ledger.fused import workspace
from trainledger.ledger.reduction import column_sum as by_formula
from trainledger.lines.kernel_work import (
    Shape,
    attention_backward,
    column_sum,
    efficient_workspace,
    embedding_backward,
    norms,
)


def size(works) -> int:
    return sum(one.dtype.bytes_of(one.elements) for one in works)


def test_flash_backward() -> None:
    """softmax_d fp32 B·H·ceil128(S); dq sums fp32 B·ceil128(S)·H·ceil32(D); for fewer key heads dk, dv expanded."""
    shape = Shape(2, 32, 8, 1000, 1000, 128, BF16)
    rows = 2 * 32 * 1024
    wanted = 4 * rows + 4 * rows * 128 + 2 * (2 * 2 * 1000 * 32 * 128)
    assert size(attention_backward(shape, Kernel.FLASH, "2.13", "sm90")) == wanted
    wide = Shape(1, 8, 8, 128, 128, 160, BF16)
    old, new = (size(attention_backward(wide, Kernel.FLASH, release, "sm90")) for release in ("2.4", "2.7"))
    assert new - old == 4 * 8 * 128 * 32


@pytest.mark.parametrize("dtype", [BF16, FP16, FP32])
@pytest.mark.parametrize("head", [64, 96, 128, 256])
@pytest.mark.parametrize("architecture", ["sm75", "sm80", "sm89", "sm90"])
def test_efficient_workspace_is_the_formulas(dtype: DType, head: int, architecture: str) -> None:
    dims = (Axis(Dim.BATCH, 2), Axis(Dim.SEQUENCE, 1536), Axis(Dim.HEADS, 12), Axis(Dim.HEAD_DIM, head))
    shape = Shape(2, 12, 12, 1536, 1536, head, dtype)
    assert efficient_workspace(shape, architecture) == workspace(dims, dtype, architecture)


@pytest.mark.parametrize("rows", [8, 300, 8192, 65536])
@pytest.mark.parametrize("columns", [64, 1023, 4096])
def test_column_sum_is_the_formulas(rows: int, columns: int) -> None:
    device = MULTIPROCESSORS["h100-80gb"]
    assert column_sum(rows, columns, device) == by_formula(rows, columns, device)


def test_embedding_backward_sorts_many_ids() -> None:
    assert embedding_backward(3072, 64, 1000) == ()
    assert size(embedding_backward(4096, 64, 1000)) == 8 * (3 * 4096 + 2 * 1000 + 1409) + 4 * 1409 * 64


def test_norms() -> None:
    assert size(norms(65537, 3)) == 4 * 3 * 2
