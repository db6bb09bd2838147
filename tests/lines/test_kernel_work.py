"""What kernels allocate inside themselves."""

from __future__ import annotations

import pytest

from trainledger.facts.dtypes import BF16, FP16, FP32, DType
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE
from trainledger.facts.kernels_attention import Kernel
from trainledger.lines.kernel_work import (
    Shape,
    Work,
    attention_backward,
    attention_forward,
    column_sum,
    efficient_tile,
    efficient_workspace,
    embedding_backward,
    flash_forward,
    flash_pieces,
    norms,
    whole_sum,
)


def size(works: tuple[Work, ...]) -> int:
    return sum(one.dtype.bytes_of(one.elements) for one in works)


@pytest.mark.parametrize(
    ("batch", "heads", "rows", "head", "processors", "pieces"),
    [
        (2, 4, 1024, 256, 108, 3),  # Gemma-3 on an A100: 128 blocks for 216 places, 384 of 432 in two waves
        (2, 4, 1024, 256, 0, 1),  # no device
        (1, 32, 512, 128, 132, 1),  # Llama-3-8B on an H100: 256 blocks are enough
        (1, 15, 512, 64, 132, 2),  # SmolLM2-360M: 120 for 264, two pieces of 256 keys
        (1, 15, 512, 80, 132, 2),  # four blocks of 128 keys; rows of results are padded to 96
        (1, 14, 256, 64, 132, 1),  # one piece of 256 keys is all there is
    ],
)
def test_flash_splits_keys_where_blocks_are_few(
    batch: int, heads: int, rows: int, head: int, processors: int, pieces: int
) -> None:
    shape = Shape(batch, heads, heads, rows, rows, head, BF16)
    assert flash_pieces(shape, processors) == pieces
    made = 4 * pieces * batch * heads * rows * (-(-head // 32) * 32 + 1)
    assert size(flash_forward(shape, "2.13.0", processors)) == (made if pieces > 1 else 0)


def test_flash_backward() -> None:
    """softmax_d fp32 B·H·ceil128(S); dq sums fp32 B·ceil128(S)·H·ceil32(D); for fewer key heads dk, dv expanded."""
    shape = Shape(2, 32, 8, 1000, 1000, 128, BF16)
    rows = 2 * 32 * 1024
    wanted = 4 * rows + 4 * rows * 128 + 2 * (2 * 2 * 1000 * 32 * 128)
    assert size(attention_backward(shape, Kernel.FLASH, "2.13", "sm90")) == wanted
    wide = Shape(1, 8, 8, 128, 128, 160, BF16)
    old, new = (size(attention_backward(wide, Kernel.FLASH, release, "sm90")) for release in ("2.4", "2.7"))
    assert new - old == 4 * 8 * 128 * 32


@pytest.mark.parametrize(
    ("head", "dtype", "architecture", "expected"),
    [
        (64, BF16, "sm80", (64, 64, 64)),
        (96, BF16, "sm89", (128, 64, 96)),
        (128, BF16, "sm90", (128, 128, 128)),
        (128, BF16, "sm86", (64, 64, 128)),
        (256, BF16, "sm89", (64, 64, 65536)),
        (128, FP32, "sm80", (128, 64, 128)),
        (64, FP16, "sm75", (64, 64, 64)),
    ],
)
def test_tiles(head: int, dtype: DType, architecture: str, expected: tuple[int, int, int]) -> None:
    row = efficient_tile(head, dtype, architecture)
    assert (row.queries, row.keys, row.largest) == expected


def test_the_workspace_holds_query_gradients_by_tile() -> None:
    tiles = 2 * 1  # 192 rows in tiles of 128, 128 columns in tiles of 128
    assert efficient_workspace(Shape(2, 4, 4, 192, 192, 128, BF16), "sm90") == 4 * 2 * 4 * tiles * (4 + 128 * 128)


def test_the_workspace_also_holds_key_and_value_gradients_where_registers_do_not() -> None:
    tiles = 3 * 4  # 192 rows and 256 columns in tiles of 64
    sums = 3 * 64 * (256 + 256)
    held = 4 * 2 * 4 * (sums + tiles * (4 + 64 * 64))
    assert efficient_workspace(Shape(2, 4, 4, 192, 192, 256, BF16), "sm89") == held


def test_values_of_another_head_dim() -> None:
    """The instance follows the wider of the two; sums of key gradients have the one's width, of values the other's."""
    narrow, wide = Shape(2, 4, 4, 192, 192, 256, BF16, 128), Shape(2, 4, 4, 192, 192, 256, BF16)
    gone = 4 * 2 * 4 * (3 * 64 * (256 - 128))
    assert efficient_workspace(wide, "sm89") - efficient_workspace(narrow, "sm89") == gone
    assert size(attention_forward(narrow, Kernel.EFFICIENT)) == 4 * 2 * 4 * 192 * 128
    assert size(attention_forward(Shape(2, 4, 4, 192, 192, 64, BF16, 192), Kernel.EFFICIENT)) == 4 * 2 * 4 * 192 * 192


def test_scratch_of_a_sum_over_rows() -> None:
    """The sizes follow from Liger's norms on an A100, whose peaks hold them to the byte."""
    device = MULTIPROCESSORS["a100-80gb"]
    assert column_sum(2048, 1024, device) == (4096 * 1024, 8)
    assert column_sum(2048, 8192, device) == (8192 * 27 * 128, 64)
    assert column_sum(132, 1024, device) == (0, 0)
    assert column_sum(2048, 1024, UNKNOWN_DEVICE) == (0, 0)


def test_scratch_of_a_sum_of_everything() -> None:
    """The sizes follow from Liger's divergence on an H100 PCIe, whose peaks hold them to the byte."""
    device = MULTIPROCESSORS["h100-pcie"]
    assert whole_sum(8192 * 8192, FP32, device) == 512
    assert whole_sum(8192 * 65536, FP32, device) == 4096
    assert whole_sum(8192 * 131072, FP32, device) == 4096  # summed half by half
    assert whole_sum(16384, FP32, device) == 0
    assert whole_sum(8192 * 8192, FP32, UNKNOWN_DEVICE) == 0


def test_embedding_backward_sorts_many_ids() -> None:
    assert embedding_backward(3072, 64, 1000) == ()
    assert size(embedding_backward(4096, 64, 1000)) == 8 * (3 * 4096 + 2 * 1000 + 1409) + 4 * 1409 * 64


def test_norms() -> None:
    assert size(norms(65537, 3)) == 4 * 3 * 2
