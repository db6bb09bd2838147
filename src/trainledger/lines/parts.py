"""Which dims tensor and expert parallelism spread over ranks, and this rank's part of them: the one place that knows.

Source: megatron/core/tensor_parallel/layers.py; megatron/core/transformer/attention.py (0.14 to 0.19).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims

BY_TENSOR = frozenset({Dim.QKV, Dim.HEADS, Dim.KV_HEADS, Dim.FFN, Dim.VOCAB, Dim.HIDDEN_PART})


@dataclass(frozen=True, slots=True)
class Parts:
    """Ranks over which tensors are spread: `tp` for layers, `etp` and `ep` for routed experts (all >= 1)."""

    tp: int = 1
    etp: int = 1
    ep: int = 1


def part(axis: Axis, parts: Parts, expert: bool = False) -> Axis:
    """One rank's entries of an axis of a tensor, or of one of the routed experts'. Key heads fewer than ranks are
    repeated: each rank has one."""
    if axis.dim is Dim.EXPERTS and expert:
        return Axis(axis.dim, axis.size // parts.ep)
    if axis.dim in BY_TENSOR:
        return Axis(axis.dim, max(axis.size // (parts.etp if expert else parts.tp), 1))
    return axis


def local(dims: Dims, parts: Parts, expert: bool = False) -> Dims:
    """One rank's part of a tensor."""
    return tuple(part(axis, parts, expert) for axis in dims)
