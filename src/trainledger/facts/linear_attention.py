"""Numbers that the code of linear attention fixes."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Chunk:
    """How many tokens the gated delta rule takes together (tokens)."""

    tokens: int
    source: Source


CHUNK = Chunk(
    64,
    Source(
        "Transformers torch_chunk_gated_delta_rule",
        "transformers/models/qwen3_next/modeling_qwen3_next.py, chunk_size",
        "5.24.0",
    ),
)
