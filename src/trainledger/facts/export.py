"""What files that are written from a plan take for granted."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Node:
    """Devices of a node, where a plan with more ranks does not say it."""

    devices: int
    source: Source


NODE = Node(8, Source("NVIDIA HGX and DGX systems", "8 GPUs of a baseboard", "2016 to 2026"))
