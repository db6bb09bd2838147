"""Chunks of a benchmark's tokens are those that PyTorch makes."""

from __future__ import annotations

import pytest

from trainledger.ledger.operator_chunks import sizes

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("tokens", [1, 5, 1023, 1024, 1025, 2047, 3000, 4096, 4100, 10_001])
@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_tokens_are_divided_as_torch_divides_them(tokens: int, chunk: int) -> None:
    whole = torch.empty(tokens).chunk(max(1, tokens // chunk))
    assert sizes(tokens, chunk) == [one.numel() for one in whole]
