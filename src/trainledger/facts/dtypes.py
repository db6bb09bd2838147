"""Element types: bits, mantissa bits and exponent range."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import BITS_PER_BYTE

IEEE = Source("IEEE 754-2019, binary formats", "table 3.5")
BFLOAT = Source("BFLOAT16 Hardware Numerics Definition", "Intel 338302-001US, section 1", "2018-11")
OCP8 = Source("OCP 8-bit Floating Point Specification", "revision 1.0, table 1", "2023-12")
OCPMX = Source("OCP Microscaling Formats (MX) Specification", "version 1.0, section 5", "2023-09")
NF4 = Source("QLoRA", "arXiv:2305.14314, section 3", "2023-05")
TORCH = Source("PyTorch tensor attributes", "docs: torch.dtype", "2.13")


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `bits` per element, scales not included; `mantissa` explicit mantissa bits (floats only)."""

    name: str
    bits: int
    mantissa: int
    source: Source

    def __hash__(self) -> int:
        """By name: no two element types share one, and dtypes are part of the keys of most look-ups."""
        return hash(self.name)

    def bytes_of(self, elements: int) -> int:
        """Bytes of that many elements, packed, rounded up to a whole byte."""
        return -(-elements * self.bits // BITS_PER_BYTE)


FP64 = DType("fp64", 64, 52, IEEE)
FP32 = DType("fp32", 32, 23, IEEE)
FP16 = DType("fp16", 16, 10, IEEE)
BF16 = DType("bf16", 16, 7, BFLOAT)
FP8 = DType("fp8", 8, 3, OCP8)
MXFP8 = DType("mxfp8", 8, 3, OCPMX)
NVFP4 = DType("nvfp4", 4, 1, Source("NVFP4", "NVIDIA Transformer Engine user guide, NVFP4", "2025"))
MXFP4 = DType("mxfp4", 4, 1, OCPMX)
NF4_TYPE = DType("nf4", 4, 0, NF4)
INT64 = DType("int64", 64, 0, TORCH)
INT32 = DType("int32", 32, 0, TORCH)
INT16 = DType("int16", 16, 0, TORCH)
INT8 = DType("int8", 8, 0, TORCH)
UINT8 = DType("uint8", 8, 0, TORCH)
BOOL = DType("bool", 8, 0, TORCH)
COMPLEX64 = DType("complex64", 64, 23, TORCH)

DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        FP64,
        FP32,
        FP16,
        BF16,
        FP8,
        MXFP8,
        NVFP4,
        MXFP4,
        NF4_TYPE,
        INT64,
        INT32,
        INT16,
        INT8,
        UINT8,
        BOOL,
        COMPLEX64,
    )
}
