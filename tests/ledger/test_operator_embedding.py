"""Embedding tables against what Liger's published benchmark measured on an A100 (all_benchmark_data.csv, 0.2.1)."""

from __future__ import annotations

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

BERT, LLAMA = {"B": 32, "T": 512, "D": 768}, {"B": 8, "T": 2048, "D": 4096}
# torch's kernel counts segments in two numbers, which the rule leaves out; whether the allocator splits the block of
# its partial sums depends on what was freed before
SPREAD = {"huggingface": 1 << 20}
ROWS: tuple[Row, ...] = (
    ("embedding", "liger", {**BERT, "V": 1024}, 12_947_947_520),
    ("embedding", "liger", {**LLAMA, "V": 4096}, 15_244_328_960),
    ("embedding", "huggingface", {**LLAMA, "V": 4096}, 15_338_780_672),
    ("embedding", "torch_compile", {**BERT, "V": 1024}, 12_947_947_520),
    ("embedding", "torch_compile", {**LLAMA, "V": 4096}, 15_344_992_256),
)


@named(ROWS)
def test_tables_with_what_the_process_kept(row: Row) -> None:
    assert abs(difference(row, "fp32", "0.2.1", "a100-80gb")) <= SPREAD.get(row[1], 0)


def test_what_the_process_kept_is_known_for_the_published_runs_alone() -> None:
    for implementation, shape in (("liger", {**BERT, "V": 1000}), ("torch_compile", {**LLAMA, "V": 16384})):
        assert operator_peak(OperatorRun("embedding", implementation, shape, "fp32")) is None
