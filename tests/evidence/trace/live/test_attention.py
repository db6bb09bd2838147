"""Attention kernels on tensors without storage: the layout of what they return."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from trainledger.evidence.trace.live.attention import by_token, in_order


def test_layouts_of_results_and_gradients() -> None:
    """[batch, heads, sequence, dim] as views of token order, and written head by head (a cache's)."""
    viewed, written = torch.empty(2, 16, 4, 8).transpose(1, 2), torch.empty(2, 4, 16, 8)
    for tensor in (viewed, written):
        assert by_token(tensor).stride() == tensor.stride()
        assert in_order(tensor).shape == tensor.shape
        assert in_order(tensor).transpose(1, 2).is_contiguous()
