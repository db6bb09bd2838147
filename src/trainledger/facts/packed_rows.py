"""Up to how many rows of input a kernel reads a packed weight itself; for more the weight is made whole for a moment.

bitsandbytes chooses by the device and the weight's shape. Its choices of fewer than 65 rows are left out: such short
inputs count as products with the whole weight, but for the few rows that every device reads packed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nextafter
from typing import NamedTuple

from trainledger.base.sources import Source
from trainledger.facts.dtypes import BF16, FP16, DType
from trainledger.facts.quantization import AWQ, BNB_4
from trainledger.facts.versions import at_least

GEMM = Source("bitsandbytes gemm_4bit", "bitsandbytes/backends/cuda/ops.py", "0.50.0, 0.50.2")


class Shape(NamedTuple):
    """A product with a packed weight: rows of input, the weight's outputs and inputs, the dtype of the product, the
    device's architecture and its multiprocessors (0: not known)."""

    rows: int
    outputs: int
    inputs: int
    dtype: DType
    architecture: str
    processors: int


def _through(bound: float) -> float:
    """The upper bound of a span that `bound` belongs to; the lower one of a span that begins behind it."""
    return nextafter(bound, inf)


Span = tuple[float, float]  # the lower bound belongs to it, the upper does not
ANY: Span = (0, inf)


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Most `rows` that are read packed on these architectures, of weights with fewer elements than `SMALL.elements` or
    others: by inputs for each output (`depth`), blocks of outputs for each multiprocessor (`waves`), and the least
    blocks, inputs, inputs times waves (`work`) and multiprocessors."""

    architectures: tuple[str, ...]
    small: bool
    rows: int
    source: Source
    depth: Span = ANY
    waves: Span = ANY
    blocks: int = 0
    inputs: Span = ANY
    work: float = 0
    processors: int = 0

    def holds(self, shape: Shape) -> bool:
        """Whether this is the row of that shape, where none before it is."""
        blocks = -(-shape.outputs // SMALL.block)
        waves = blocks / shape.processors
        return (
            shape.architecture in self.architectures
            and self.small is (shape.outputs * shape.inputs < SMALL.elements)
            and self.depth[0] <= shape.inputs / shape.outputs < self.depth[1]
            and self.waves[0] <= waves < self.waves[1]
            and self.inputs[0] <= shape.inputs < self.inputs[1]
            and blocks >= self.blocks
            and shape.inputs * waves >= self.work
            and shape.processors >= self.processors
        )


@dataclass(frozen=True, slots=True)
class Small:
    """Elements below which a weight is small, outputs of one block of the kernel, rows that are read packed whatever
    the device, inputs of one scale (others are not read packed), and the release since which there is such a kernel."""

    elements: int
    block: int
    floor: int
    group: int
    since: str
    source: Source


SMALL = Small(4 * 2**20, 64, 4, 64, "0.50", GEMM)
_T4, _A100, _A10, _H100 = ("sm75",), ("sm80",), ("sm86",), ("sm90",)
_REST = ("sm86", "sm89", "sm120", "sm121")
_SHORT: Span = (0, 1 / 2)  # less than one input for two outputs
_WIDE: Span = (0, 1)
_SQUARE: Span = (1, _through(1))
PACKED_ROWS: tuple[PackedRows, ...] = (
    PackedRows(_A100, True, 1536, GEMM, _SHORT, (0, 1 / 3)),
    PackedRows(_A100, True, 512, GEMM, _SHORT),
    PackedRows(_H100, True, 512, GEMM, _SHORT, (0, 1 / 3)),
    PackedRows(_H100, True, 320, GEMM, _SHORT),
    PackedRows(_T4, True, 320, GEMM, _SHORT, (3, inf)),
    PackedRows(_T4, True, 0, GEMM, _SHORT, inputs=(1024, inf)),
    PackedRows(_T4, True, 96, GEMM, _SHORT, inputs=(704, inf)),
    PackedRows(_T4, True, 320, GEMM, _SHORT),
    PackedRows(_REST, True, 320, GEMM, _SHORT, (1, inf)),
    PackedRows(_REST, True, 192, GEMM, _SHORT, work=_through(320)),
    PackedRows(_REST, True, 320, GEMM, _SHORT),
    PackedRows(_A100, True, 128, GEMM, (1, inf), (_through(1 / 8), _through(1 / 4))),
    PackedRows(_A100, True, 384, GEMM, _WIDE, (0, _through(1 / 4))),
    PackedRows(_T4, False, 128, GEMM, _WIDE, (3, inf)),
    PackedRows(_A100, False, 128, GEMM, waves=(3, inf)),
    PackedRows(_A100, False, 0, GEMM, waves=(1, inf)),
    PackedRows(_A100, False, 0, GEMM, (3, inf), (_through(1 / 4), inf)),
    PackedRows(_A100, False, 0, GEMM, _SQUARE, (0, 3 / 5), blocks=48),
    PackedRows(_A100, False, 128, GEMM, (0, _through(1)), (0, 1 / 2)),
    PackedRows(_A100, False, 128, GEMM, _WIDE, (1 / 2, 1)),
    PackedRows(_A10, False, 128, GEMM, waves=(1, inf)),
    PackedRows(("sm121",), False, 256, GEMM, waves=(1, inf)),
    PackedRows(("sm120", "sm89"), False, 256, GEMM, waves=(3, inf)),
    PackedRows(("sm120", "sm89"), False, 128, GEMM, waves=(2, inf)),
    PackedRows(("sm120",), False, 96, GEMM, (1, inf), (4 / 5, inf)),
    PackedRows(("sm89", "sm121"), False, 128, GEMM, (_through(2), inf), (4 / 5, inf)),
    PackedRows(("sm89", "sm121"), False, 128, GEMM, waves=(4 / 5, inf), blocks=200),
    PackedRows(("sm89", "sm121"), False, 128, GEMM, (1, inf), (4 / 5, inf), processors=60),
)
HALF_ONLY = _T4  # architectures whose kernel takes fp16 alone


@dataclass(frozen=True, slots=True)
class WholeRows:
    """Up to this many `rows` of input a package's kernel reads the packed weight itself, whatever its shape."""

    package: str
    rows: int
    source: Source


WHOLE_ROWS = (WholeRows("autoawq", 1023, AWQ),)


def reads_packed(package: str, release: str, shape: Shape) -> bool:
    """Whether a package's kernel reads the packed weight of this product; an unknown release counts as the newest."""
    if package != BNB_4.package:
        return any(shape.rows <= one.rows for one in WHOLE_ROWS if one.package == package)
    if shape.inputs % SMALL.group or not at_least(release or None, SMALL.since):
        return False
    if shape.rows <= SMALL.floor:
        return True
    if shape.dtype not in (BF16, FP16) or (shape.dtype == BF16 and shape.architecture in HALF_ONLY):
        return False
    known = PACKED_ROWS if shape.processors else ()
    return shape.rows <= next((one.rows for one in known if one.holds(shape)), 0)
