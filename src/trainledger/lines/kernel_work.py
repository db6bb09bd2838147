"""What kernels allocate inside themselves, from plain sizes: what the formulas and the trace both need.

Elements and bytes of temporaries that no caller sees. Each function names the source of its rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from trainledger.facts.dtypes import FP32, INT64, UINT8, DType
from trainledger.facts.kernel_sets import COLUMN_SUM, Multiprocessors
from trainledger.facts.kernels import EMBEDDING_BACKWARD, NORM
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.kernels_fused import EFFICIENT, FLASH, FLASH_SPLITS, TILES, Tile
from trainledger.facts.versions import at_least
from trainledger.lines.kernel_choice import level


class Work(NamedTuple):
    """A temporary inside a kernel: its name, elements and dtype."""

    name: str
    elements: int
    dtype: DType


HALVES = ("first", "second")


@dataclass(frozen=True, slots=True)
class Shape:
    """One call of attention: batch, query heads, key heads, queries, keys, head dim (elements), the queries' dtype, the
    values' head dim (0: that of the queries)."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head: int
    dtype: DType
    value: int = 0

    @property
    def values(self) -> int:
        """The head dim of the values."""
        return self.value or self.head

    @property
    def widest(self) -> int:
        """The head dim by which a kernel's instance is chosen."""
        return max(self.head, self.values)


def up(size: int, step: int) -> int:
    """`size` rounded up to a multiple of `step`."""
    return -(-size // step) * step


def attention_backward(shape: Shape, kernel: Kernel, torch: str, architecture: str) -> tuple[Work, ...]:
    """Temporaries of a fused attention kernel's backward, all alive at once until it returns.

    Sources: `facts.kernels_fused` and the kernels' files that it names.
    """
    if kernel is Kernel.EFFICIENT:
        return _efficient(shape, architecture)
    if kernel is Kernel.CUDNN:
        rows = shape.batch * shape.heads * shape.queries
        return (Work("sums of query gradients and of softmax", rows * (shape.head + 1), FP32),)
    return _flash(shape, kernel, torch)


def flash_pieces(shape: Shape, processors: int) -> int:
    """Into how many pieces the flash kernel's forward without dropout splits the keys on a device of so many
    multiprocessors (0: not known, so one)."""
    row = FLASH_SPLITS
    slots, blocks = processors * row.blocks, shape.batch * shape.heads * -(-shape.queries // row.queries)
    if blocks >= row.full * slots:
        return 1
    keys = -(-shape.keys // next(size for head, size in row.keys if shape.head <= head))
    used = {}
    for pieces in range(1, min(row.most, slots, keys) + 1):
        if pieces == 1 or -(-keys // pieces) != -(-keys // (pieces - 1)):
            waves = blocks * pieces / slots
            used[pieces] = waves / ceil(waves)
    return next((pieces for pieces, share in used.items() if share >= row.good * max(used.values())), 1)


def flash_forward(shape: Shape, torch: str, processors: int) -> tuple[Work, ...]:
    """Temporaries of the flash kernel's forward without dropout: sums of each piece of the keys, where there are
    several."""
    pieces = flash_pieces(shape, processors)
    if pieces == 1:
        return ()
    rows = pieces * shape.batch * shape.heads * shape.queries
    step = FLASH.wide_step if shape.head > FLASH.wide and at_least(torch, FLASH.since) else FLASH.step
    return (Work("softmax of pieces", rows, FP32), Work("output of pieces", rows * up(shape.head, step), FP32))


def attention_forward(shape: Shape, kernel: Kernel) -> tuple[Work, ...]:
    """Temporaries of a fused attention kernel's forward, but the flash kernel's."""
    if kernel is not Kernel.EFFICIENT or shape.widest <= EFFICIENT.accumulates or shape.dtype == FP32:
        return ()
    return (Work("output sums", shape.batch * shape.heads * shape.queries * shape.values, FP32),)


def _flash(shape: Shape, kernel: Kernel, torch: str) -> tuple[Work, ...]:
    newer = at_least(torch, FLASH.since) or kernel is Kernel.PACKAGE
    step = FLASH.wide_step if shape.head > FLASH.wide and newer else FLASH.step
    rows = shape.batch * shape.heads * up(shape.queries, FLASH.rows)
    made = [
        Work("softmax_d", rows, FP32),
        Work("sums of query gradients", rows * up(shape.head, step), FP32),
    ]
    if shape.kv_heads != shape.heads:
        wide = shape.batch * shape.keys * shape.heads * shape.head
        made += [Work(f"{name} gradients by query head", wide, shape.dtype) for name in ("key", "value")]
    return tuple(made)


def _efficient(shape: Shape, architecture: str) -> tuple[Work, ...]:
    rows = shape.batch * shape.heads * shape.queries
    made = [Work("delta", rows, FP32)]
    if shape.dtype == FP32:  # the product and the sums are gone when the workspace is made; the larger is counted
        made = [Work("delta", rows, FP32)]
        work = efficient_workspace(shape, architecture)
        product = FP32.bytes_of(rows * shape.values + rows)
        if product > work:
            return (*made, Work("output times gradient", rows * shape.values, FP32), Work("delta by token", rows, FP32))
    return (*made, Work("workspace", efficient_workspace(shape, architecture), UINT8))


def efficient_tile(head: int, dtype: DType, architecture: str) -> Tile:
    """The instance of the memory-efficient backward that runs."""
    wide = dtype == FP32 or level(architecture) < level("sm80")
    for row in TILES:
        if row.wide is wide and head <= row.largest and (not row.architectures or architecture in row.architectures):
            return row
    return TILES[-1]


def efficient_workspace(shape: Shape, architecture: str) -> int:
    """Bytes of the memory-efficient backward's workspace."""
    row, blocks = efficient_tile(shape.widest, shape.dtype, architecture), shape.batch * shape.heads
    splits = -(-shape.keys // row.keys)
    sums = 0
    if shape.dtype != FP32 and row.largest > row.queries:
        splits = max(min(splits, EFFICIENT.tiles // blocks), 1)
        if blocks >= EFFICIENT.many and shape.keys <= row.keys + row.keys:
            splits = 1
        sums = splits * row.keys * (up(shape.head, row.queries) + up(shape.values, row.queries))
    tiles = up(shape.queries, row.queries) // row.queries * (up(shape.head, row.keys) // row.keys)
    held = EFFICIENT.header // FP32.bytes_of(1) + row.queries * row.keys
    return FP32.bytes_of(blocks * up(sums + tiles * held, EFFICIENT.granule))


def embedding_backward(ids: int, width: int, rows: int) -> tuple[Work, ...]:
    """Temporaries of embedding_dense_backward for that many ids, elements of a row, and rows of the table."""
    row = EMBEDDING_BACKWARD
    if ids <= row.small:
        return ()
    segments = min(ids, rows)
    partial = segments + ids // row.ids_per_partial
    return (
        Work("sorted ids", row.per_id * ids + row.per_segment * segments + partial, INT64),
        Work("partial rows", partial * width, FP32),
    )


def norms(largest: int, tensors: int) -> tuple[Work, ...]:
    """Temporaries of a foreach norm: one partial sum per chunk of the largest tensor, for every tensor."""
    return (Work("partial sums of norms", tensors * -(-largest // NORM.chunk), FP32),)


def _below(value: int) -> int:
    """The largest power of two that is not above a value of 1 or more."""
    return 1 << (value.bit_length() - 1)


def column_sum(rows: int, columns: int, device: Multiprocessors) -> tuple[int, int]:
    """Partial sums (fp32 elements) that several blocks of the device share, and how many groups of them there are.

    (0, 0) where one block sums each column by itself, or where the device is not known. Each thread keeps a vector of
    columns. Source: `facts.kernel_sets.COLUMN_SUM`.
    """
    k = COLUMN_SUM
    if not device.count or not rows or not columns:
        return (0, 0)
    vector = k.vector if columns % k.vector == 0 else 1
    threads = k.threads // vector
    lanes = min(_below(max(min(columns // vector, threads), 1)), k.warp)
    depth = min(threads // lanes, _below(max(rows, 1)))
    each = -(-rows // depth) if rows >= min(depth * k.least, k.most) else rows
    blocks = -(-columns // vector // lanes)
    target = device.count * (device.threads // (lanes * depth))
    if each < k.most or blocks > target:
        return (0, 0)
    shares = max(min(-(-target // blocks), -(-each // k.least)), -(-each // k.most))
    return (columns * shares * lanes * vector, blocks) if shares > 1 else (0, 0)


def whole_sum(size: int, dtype: DType, device: Multiprocessors) -> int:
    """Partial sums (fp32 elements) that blocks of the device share when all of a tensor is summed into one number.

    0 where one block does it, or where the device is not known. A tensor of more bytes than `COLUMN_SUM.reach` is
    summed half by half. Source: `facts.kernel_sets.COLUMN_SUM`.
    """
    k = COLUMN_SUM
    if not device.count or not size:
        return 0
    while dtype.bytes_of(size) > k.reach:
        size -= size // len(HALVES)
    threads = min(_below(max(size // k.vector, 1)), k.threads)
    each = -(-size // threads)
    if each < k.most:
        return 0
    target = device.count * (device.threads // threads)
    shares = max(min(target, -(-each // k.least)), -(-each // k.most))
    return shares if shares > 1 else 0
