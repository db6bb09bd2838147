"""Workspaces that libraries take from the caching allocator and keep."""

from __future__ import annotations

from trainledger.facts.kernels import CUBLAS
from trainledger.facts.versions import at_least


def matmul_workspace(architecture: str, torch: str | None) -> int:
    """Bytes of one thread's cuBLAS workspace on an architecture (`sm90`, ...), by PyTorch's release (None: newest)."""
    newer = any(architecture == name and at_least(torch, since) for name, since in CUBLAS.since)
    return CUBLAS.large if architecture in CUBLAS.architectures or newer else CUBLAS.default
