"""When a bucket of Megatron-Core's buffers is full.

Source: megatron/core/distributed/distributed_data_parallel.py; megatron/training/training.py, get_model (core_v0.8.0 to
core_v0.19.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.facts.megatron_buffers import BUCKET, COUNTS_CONTEXT, GATHERS_AT_STEP


@dataclass(frozen=True, slots=True)
class Bucketing:
    """What decides a bucket's size: `size` and `number` as given (ddp_bucket_size, ddp_num_buckets; None where left
    out), `elements`: of all chunks of the rank; `overlap`: overlap_grad_reduce; the pipeline stage; the model chunk of
    the stage; `at_step`: overlap_param_gather_with_optimizer_step."""

    size: int | None = None
    number: int | None = None
    elements: int = 0
    overlap: bool = False
    stage: int = 0
    chunk: int = 0
    at_step: bool = False


def bucket_of(given: Bucketing, ranks: int, context: int = 1, release: str = "") -> int | None:
    """Elements at which a bucket is full; None where all of a buffer is one bucket.

    Only the first chunk of the first stage has buckets, and only where reductions overlap. `ranks`: data-parallel ranks
    with `context` context-parallel ones counted.
    """
    whole = given.at_step and GATHERS_AT_STEP.holds(release)
    if not given.overlap or given.stage or given.chunk or whole:
        return None
    if given.number:
        return given.elements // given.number
    if given.size is not None:
        return given.size
    return BUCKET.elements(ranks if COUNTS_CONTEXT.holds(release) else ranks // context)
