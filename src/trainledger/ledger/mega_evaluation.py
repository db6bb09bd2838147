"""Evaluation under Megatron-Core: the pipeline's schedule forward only, over some micro-batches.

Nothing is kept for a backward. A stage holds the input that each of its chunks was last given, and, until the next
forward has returned, the output that it sent last. Gradient buffers stay where they are, and so do the fp32 gradients
that the optimizer read. The last stage keeps the loss of each micro-batch, and no logits.
Source: megatron/core/pipeline_parallel/schedules.py, with forward_only; megatron/training/training.py, evaluate
(0.14 to 0.19).
"""

from __future__ import annotations

from collections import Counter

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32
from trainledger.facts.evaluation import FORWARD_ONLY
from trainledger.ledger.mega_forward import Gather, evaluating, forwards, rounds
from trainledger.ledger.mega_once import SHARED, once
from trainledger.ledger.mega_run import Rank
from trainledger.lines.line import Account
from trainledger.lines.moments import EVALUATION, FORWARD, in_part
from trainledger.lines.stream import Events, Segment
from trainledger.plan.beyond import Evaluation

MOMENT = in_part(EVALUATION, FORWARD)


def evaluation(rank: Rank, how: Evaluation, gather: Gather | None, before: Events) -> tuple[Segment, ...]:
    """What an evaluation takes after the steps; `before`: deaths of what the stages let go of as they are given
    another input."""
    own = evaluating(rank, how.micro_batch, how.sequence)
    edges, passes = forwards(own, gather)
    losses = _losses(own, how.batches)
    ending = (*losses, *(-event for event in losses))
    found = (
        Segment(MOMENT, (*before, *_begun(rank, own))),
        *rounds(own.chunks, edges, passes, how.batches),
        Segment(MOMENT, ending),
    )
    return tuple(one._replace(moment=MOMENT) for one in found if one.events)


def _begun(rank: Rank, own: Rank) -> Events:
    """What is made first: the batch, in whose place training's is gone; a larger buffer that layers share."""
    lines, there, needed = rank.job.book.lines, Counter(dict(once(rank))), Counter(dict(once(own)))
    more, gone = needed - there, there - needed
    older, newer = (next((line for line in one if lines[line].name == SHARED), None) for one in (gone, more))
    if older is not None and newer is not None and lines[newer].unit < lines[older].unit:
        more[newer] = gone[older] = 0
    left = (line for line in gone.elements() if lines[line].account is Account.INPUTS or line == older)
    return (*(line + 1 for line in more.elements()), *(-line - 1 for line in left))


def _losses(rank: Rank, batches: int) -> Events:
    """One fp32 sum and one count of tokens for each micro-batch, where the loss is made."""
    if not any(chunk.last for chunk in rank.chunks):
        return ()
    dims = (Axis(Dim.ELEMENTS, len(("sum", "count"))),)
    line = rank.job.book.tensor(Account.LOGITS, "loss of a micro-batch, evaluated", dims, FP32, FORWARD_ONLY)
    return (line + 1,) * batches
