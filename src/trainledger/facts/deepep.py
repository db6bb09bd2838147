"""DeepEP: the buffers that its kernels send tokens through, taken from the device itself."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import MIB


@dataclass(frozen=True, slots=True)
class Token:
    """Bytes of a token beside its hidden state: of where it comes from, of the numbers and weights of its experts, of
    scales, and what is added between nodes."""

    meta: int
    chosen: int
    scales: int
    more: int


@dataclass(frozen=True, slots=True)
class Counters:
    """Bytes of a channel's counters: of a rank of the node, `each` and `step` more for every node; of a node, `far`."""

    each: int
    step: int
    far: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """By ranks that share the experts: tokens received at a time within a node; tokens sent at a time between nodes, to
    the experts and back."""

    ranks: int
    near: int
    sent: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Buffers:
    """`channels`: one for each pair of the multiprocessors that the kernels run on; `peers`: ranks of a node. `sides`:
    of sending and receiving between nodes; `kept`: tokens received between nodes, rounded up to a multiple of those
    sent at a time; bytes `spare` that are added there, and `heap`, of which the memory is a multiple. `workspace`: of
    the kernels. Sizes are multiples of `align`."""

    channels: int
    peers: int
    token: Token
    counters: Counters
    sides: int
    kept: int
    spare: int
    heap: int
    workspace: int
    align: int
    rows: tuple[Tokens, ...]
    source: Source


BUFFERS = Buffers(
    20 // 2, 8, Token(8, 128 * (8 + 4), 128 * 4, 16), Counters(3 * 4, 2 * 4, (8 * 2 + 2) * 2 * 4),
    2, 128, MIB, 512 * MIB, 32 * MIB, 128,
    (
        Tokens(2, 256, (6, 6)), Tokens(4, 256, (6, 6)), Tokens(8, 256, (6, 6)), Tokens(16, 288, (20, 28)),
        Tokens(24, 288, (32, 20)), Tokens(32, 288, (32, 20)), Tokens(64, 288, (28, 20)), Tokens(128, 560, (32, 12)),
        Tokens(144, 720, (12, 8)), Tokens(160, 720, (12, 8)),
    ),
    Source(
        "DeepEP",
        "csrc/config.hpp, get_nvl_buffer_size_hint, get_rdma_buffer_size_hint; csrc/kernels/configs.cuh; "
        "deep_ep/buffer.py",
        "2025",
    ),
)  # fmt: skip
OPTIONS = ("moe_flex_dispatcher_backend", "moe_enable_deepep")
BACKEND = "deepep"  # what the flex dispatcher takes where none is named
