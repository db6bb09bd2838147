"""Two heads and the divergence between them, as Liger measured them on an H100 (all_benchmark_data.csv, 0.3.1)."""

from __future__ import annotations

from tests.ledger.operator_rows import Row, difference, named
from trainledger.ledger.operators import OperatorRun, operator_peak

HEAD = {"H": 4096, "V": 128256}
ROWS: tuple[Row, ...] = (
    ("fused_linear_jsd", "liger", {**HEAD, "BT": 2048}, 5_486_084_608),
    ("fused_linear_jsd", "liger", {**HEAD, "BT": 4096}, 6_702_367_232),
    ("fused_linear_jsd", "torch", {**HEAD, "BT": 2048}, 17_978_894_336),
    ("fused_linear_jsd", "torch", {**HEAD, "BT": 4096}, 31_687_985_152),
)


@named(ROWS)
def test_heads_with_their_divergence(row: Row) -> None:
    assert difference(row, "bf16", "0.3.1", "h100-80gb") == 0


def test_a_single_chunk_holds_nothing_of_a_chunk_before() -> None:
    """64 tokens are one chunk of 64 where the vocabulary is no wider than the states; half of them as well."""
    whole, half = (
        operator_peak(OperatorRun("fused_linear_jsd", "liger", {"H": 1024, "V": 1024, "BT": tokens}, "bf16"))
        for tokens in (64, 32)
    )
    assert whole is not None
    assert half is not None
    states, logits, losses = 4 * 2 * 1024, 6 * 2 * 1024, 4 * 1024
    assert whole - half == 32 * (states + logits + losses)


def test_code_of_later_releases_is_not_known() -> None:
    """0.4.0 makes logits in fp32 and the head's gradient of each chunk apart; the baseline is as it was."""
    shape = {"H": 1024, "V": 1024, "BT": 64}
    later = [
        operator_peak(OperatorRun("fused_linear_jsd", one, shape, "bf16", release="0.4.0"))
        for one in ("liger", "torch")
    ]
    assert later[0] is None
    assert later[1] is not None
