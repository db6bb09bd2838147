"""Births and deaths of storages while plain PyTorch code runs on a CPU, for baselines that no plan describes.

A dispatch mode sees every operation below autograd; a weak reference tells when a storage's last owner lets go.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainledger.facts.allocator import CUDA

Build = Callable[[], Callable[[], Any]]  # makes what a benchmark makes, and gives its forward
# What an operation's tensor and storage count when autograd's buffer is their only owner: autograd then adds in place.
SOLE_TENSOR, SOLE_STORAGE = 4, 2
# Backward formulas write into zeros in place; while a mode is active they do so out of place.
WRITES_INTO_ZEROS = {
    "aten.scatter_add.default": torch.ops.aten.scatter_add_.default,
    "aten.scatter.src": torch.ops.aten.scatter_.src,
    "aten.index_put.default": torch.ops.aten.index_put_.default,
}


@dataclass
class Storages:
    """Rounded sizes of births (> 0) and deaths (< 0) in order."""

    events: list[int] = field(default_factory=list)
    known: dict[int, Any] = field(default_factory=dict)

    def see(self, tensor: torch.Tensor, counted: bool = True) -> None:
        """A birth, if the tensor's storage is new; `counted`: it gives events."""
        storage = tensor.untyped_storage()
        place, size = storage._cdata, CUDA.rounded(storage.nbytes()) if counted else 0
        if place in self.known:
            return

        def gone(_: Any) -> None:
            del self.known[place]
            if size:
                self.events.append(-size)

        self.known[place] = weakref.ref(storage, gone)
        if size:
            self.events.append(size)

    def highest(self, start: int) -> int:
        """Bytes at the largest instant from the event of that number on."""
        level = high = sum(self.events[:start])
        for event in self.events[start:]:
            level += event
            high = max(high, level)
        return high


class Watching(TorchDispatchMode):  # type: ignore[misc]
    """Tells `storages` of every result."""

    def __init__(self, storages: Storages) -> None:
        super().__init__()
        self.storages = storages

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, backward = str(func), torch._C._current_autograd_node() is not None
        if backward and name == "aten.add.Tensor" and _owned(*args):
            return args[0].add_(args[1])
        if backward and name in WRITES_INTO_ZEROS:
            return WRITES_INTO_ZEROS[name](*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.storages.see(leaf)
        return out


def largest(build: Build, retain: bool) -> int:
    """Bytes at the largest instant of the third repetition, inputs and weights included."""
    storages, start = Storages(), 0
    with Watching(storages):
        forward = build()
        for _ in range(3):
            start = len(storages.events)
            loss = forward()
            loss.backward(retain_graph=retain)
            del loss
    return storages.highest(start)


def _owned(old: Any, new: Any, *rest: Any) -> bool:
    """Whether autograd would have added in place had no mode been active."""
    if rest or not isinstance(new, torch.Tensor) or old.shape != new.shape or old._is_view():
        return False
    shared = torch._C._storage_Use_Count(old.untyped_storage()._cdata)
    return bool(old._use_count() <= SOLE_TENSOR and shared <= SOLE_STORAGE)
