"""Up to how many rows bitsandbytes' kernel reads packed weights: its choices for shapes of known models."""

from __future__ import annotations

import pytest

from trainledger.facts.dtypes import BF16, FP16, FP32
from trainledger.facts.packed_rows import Shape, reads_packed


def most(outputs: int, inputs: int, architecture: str, processors: int) -> int:
    """The most rows of 65 and more that are read packed; 0 where there are none."""
    rows = (
        rows
        for rows in range(65, 2049)
        if reads_packed("bitsandbytes", "0.50.2", Shape(rows, outputs, inputs, FP16, architecture, processors))
    )
    return max(rows, default=0)


@pytest.mark.parametrize(
    ("outputs", "inputs", "architecture", "processors", "rows"),
    [
        (14336, 4096, "sm80", 108, 0),  # Llama-3-8B, up: two blocks for each multiprocessor
        (28672, 8192, "sm80", 108, 128),  # Llama-3-70B, up: four
        (28672, 8192, "sm90", 132, 0),
        (28672, 8192, "sm100", 148, 0),
        (28672, 8192, "sm89", 142, 256),
        (14336, 4096, "sm89", 142, 128),
        (14336, 4096, "sm86", 84, 128),
        (4096, 4096, "sm80", 108, 0),
        (1024, 4096, "sm80", 108, 0),
        (4864, 896, "sm80", 108, 128),  # Qwen2.5-0.5B, up
        (896, 896, "sm80", 108, 128),
        (3072, 768, "sm80", 108, 512),
        (2048, 512, "sm80", 108, 1536),
        (2048, 512, "sm90", 132, 512),
        (2048, 512, "sm75", 40, 320),
    ],
)
def test_most_rows_of_a_weight(outputs: int, inputs: int, architecture: str, processors: int, rows: int) -> None:
    assert most(outputs, inputs, architecture, processors) == rows


def test_what_no_kernel_reads() -> None:
    """Other releases, dtypes, inputs that no scale ends with; a device that is not known reads four rows packed."""
    shape = Shape(256, 28672, 8192, BF16, "sm89", 142)
    assert reads_packed("bitsandbytes", "", shape)
    assert not reads_packed("bitsandbytes", "0.49.2", shape)
    assert not reads_packed("bitsandbytes", "", shape._replace(dtype=FP32))
    assert not reads_packed("bitsandbytes", "", shape._replace(inputs=8200))
    assert not reads_packed("bitsandbytes", "", shape._replace(dtype=BF16, architecture="sm75", rows=65))
    assert not reads_packed("bitsandbytes", "", shape._replace(processors=0))
    assert reads_packed("bitsandbytes", "", shape._replace(processors=0, rows=4))
    assert not reads_packed("auto-gptq", "", shape)


def test_awq_reads_packed_below_1024_rows() -> None:
    shape = Shape(1023, 4096, 4096, FP16, "sm90", 132)
    assert reads_packed("autoawq", "", shape)
    assert not reads_packed("autoawq", "", shape._replace(rows=1024))
