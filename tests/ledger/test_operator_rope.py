"""Llama 4's rotary embedding against Liger's published rows (all_benchmark_data.csv, 10b6cdec)."""

from __future__ import annotations

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

HEADS = {"num_q_heads": 32, "num_kv_heads": 8}
ROWS: tuple[Row, ...] = (
    ("llama4_rope", "liger", {**HEADS, "hidden_size": 8192, "T": 4096}, 208_699_904),
    ("llama4_rope", "huggingface", {**HEADS, "hidden_size": 8192, "T": 4096}, 624_984_576),
    ("llama4_rope", "liger", {**HEADS, "seq_len": 2048, "H": 512}, 39_043_584),
    ("llama4_rope", "huggingface", {**HEADS, "seq_len": 2048, "H": 512}, 52_052_480),
)


@named(ROWS)
def test_published_rows(row: Row) -> None:
    assert difference(row, "bf16", "0.6.1", "h100-80gb") == 0


def test_the_workspace_follows_the_card() -> None:
    """32 MiB on Hopper, 8 MiB and 128 KiB on Ampere, for the product that made the factors."""
    operator, implementation, shape, _ = ROWS[0]
    hopper, ampere = (
        operator_peak(OperatorRun(operator, implementation, shape, "bf16", device=device))
        for device in ("h100-80gb", "a100-80gb")
    )
    assert hopper is not None
    assert ampere is not None
    assert hopper - ampere == 32 * 2**20 - (8 * 2**20 + 128 * 2**10)
