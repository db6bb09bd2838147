"""What nodes of experts' operations keep for their backward, in PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

ROWS, TOKENS, HIDDEN = 24, 16, 8


def kept(run: Callable[[Any], Any], x: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """Dtypes and sizes of what the operation saves of `x`, a result that needs a gradient."""
    saved: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):
        run(x * 1)
    return [(one.dtype, tuple(one.shape)) for one in saved]


def added(x: Any) -> Any:
    return torch.zeros(TOKENS, HIDDEN, dtype=x.dtype).index_add_(0, torch.arange(ROWS) % TOKENS, x)


def scattered(x: Any) -> Any:
    places = (torch.arange(ROWS) % TOKENS)[:, None].expand(-1, HIDDEN)
    return torch.zeros(TOKENS, HIDDEN, dtype=x.dtype).scatter_add_(0, places, x)


def test_rows_that_are_added_are_kept_and_rows_that_are_scattered_are_not() -> None:
    x = torch.zeros(ROWS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    assert (torch.bfloat16, (ROWS, HIDDEN)) in kept(added, x)
    assert all(dtype is torch.int64 for dtype, _ in kept(scattered, x))


def test_what_a_mask_picks_from_is_kept_beside_the_mask() -> None:
    x = torch.zeros(ROWS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.ones(ROWS, HIDDEN, dtype=torch.bool)
    assert sorted(str(dtype) for dtype, _ in kept(lambda y: y.masked_select(mask), x)) == [
        "torch.bfloat16",
        "torch.bool",
    ]
