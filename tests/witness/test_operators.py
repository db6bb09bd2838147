"""Baselines of operator benchmarks in plain PyTorch: their largest instant against the written operator's.

The operations and the names that hold their results are those of Liger's benchmarks of sparsemax and of sparse
multi-token attention; what kernels allocate inside themselves a dispatch mode cannot see, and is not at the peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tests.witness.storages import Storages, Watching
from trainledger.facts.allocator import CUDA
from trainledger.ledger.operators import OperatorRun, operator_peak


def sparsemax(x: Any) -> Any:
    ordered, places = torch.sort(x, dim=-1, descending=True)
    cumulated = torch.cumsum(ordered, dim=-1)
    counts = torch.arange(1, x.size(-1) + 1, dtype=x.dtype)
    left = 1 + counts * ordered
    support = left > cumulated
    k = support.sum(dim=-1, keepdim=True).clamp(min=1)
    total = (ordered * support).sum(dim=-1, keepdim=True)
    tau = (total - 1) / k
    result = torch.clamp(x - tau, min=0)
    del places
    return result


class Attention(torch.nn.Module):
    """Masked scores, made sparse by row, then a convolution over both lengths."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(channels, channels, kernel, kernel))
        self.bias = torch.nn.Parameter(torch.zeros(channels))

    def forward(self, scores: Any) -> Any:
        length = scores.shape[-1]
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool)).view(1, 1, length, length)
        low, zero = torch.full((), -1e9), torch.full((), 0.0)
        z = scores.masked_fill(~mask, low)
        ordered, places = torch.sort(z, dim=-1, descending=True)
        cumulated = torch.cumsum(ordered, dim=-1)
        counts = torch.arange(1, length + 1, dtype=z.dtype).view(1, 1, 1, length)
        unmasked = ordered > -1e8
        support = (1 + counts * ordered > cumulated) & unmasked
        k = torch.sum(support, dim=-1, keepdim=True)
        safe = torch.max(k, torch.ones_like(k))
        picked = torch.gather(cumulated, dim=-1, index=safe - 1)
        tau = (picked - 1) / safe.to(z.dtype)
        tau = torch.where(k == 0, torch.full_like(tau, float("inf")), tau)
        rows = torch.clamp(z - tau, min=0)
        mixed = torch.nn.functional.conv2d(rows, self.weight, self.bias, padding=self.weight.shape[-1] // 2)
        result = mixed.masked_fill(~mask, zero)
        del places
        return result


def largest(forward: Callable[[Any], Any], x: Any, weights: Iterable[Any] = ()) -> int:
    """Bytes at the largest instant of the third repetition, `x` and weights included."""
    storages, start = Storages(), 0
    outside = [x, *weights]
    for tensor in outside:
        storages.see(tensor, counted=False)
    with Watching(storages):
        incoming = torch.randn_like(x)
        for _ in range(3):
            start = len(storages.events)
            result = forward(x)
            result.backward(incoming, retain_graph=True)
            del result
    return storages.highest(start) + sum(CUDA.rounded(tensor.nbytes) for tensor in outside)


def test_sparsemax() -> None:
    x = torch.randn(256, 512, requires_grad=True)
    run = OperatorRun("sparsemax", "torch", {"B": 1, "T": 256, "V": 512}, "fp32")
    assert operator_peak(run) == largest(sparsemax, x)


@pytest.mark.parametrize("length", [32, 64, 128])
def test_sparse_multi_token_attention(length: int) -> None:
    module = Attention(4, 3)
    x = torch.randn(2, 4, length, length, requires_grad=True)
    shape = {"B": 2, "C_in": 4, "C_out": 4, "K": 3, "groups": 1, "bias": True, "L": length}
    peak = operator_peak(OperatorRun("sparse_multi_token_attention", "torch", shape, "fp32"))
    weights = list(module.parameters())
    spare = sum(CUDA.rounded(weight.nbytes) for weight in weights)  # of the other implementation's module
    assert peak == largest(module, x, weights) + spare
