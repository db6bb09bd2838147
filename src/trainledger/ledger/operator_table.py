"""Every operator of a published benchmark that the program knows, by its name and implementation."""

from __future__ import annotations

from collections.abc import Callable

from trainledger.ledger import (
    operator_cosine,
    operator_distillation,
    operator_divergence,
    operator_embedding,
    operator_gated,
    operator_heads,
    operator_losses,
    operator_moe,
    operator_neighborhood,
    operator_norms,
    operator_policy,
    operator_preferences,
    operator_rope,
    operator_sparse,
    operator_unpaired,
    operator_vocab_parallel,
    operator_writers,
)
from trainledger.ledger.operator_writers import OperatorRun, Written

WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    **operator_writers.WRITERS,
    **operator_norms.WRITERS,
    **operator_embedding.WRITERS,
    **operator_sparse.WRITERS,
    **operator_neighborhood.WRITERS,
    **operator_heads.WRITERS,
    **operator_gated.WRITERS,
    **operator_rope.WRITERS,
    **operator_moe.WRITERS,
    **operator_losses.WRITERS,
    **operator_divergence.WRITERS,
    **operator_preferences.WRITERS,
    **operator_unpaired.WRITERS,
    **operator_policy.WRITERS,
    **operator_distillation.WRITERS,
    **operator_cosine.WRITERS,
    **operator_vocab_parallel.WRITERS,
}
