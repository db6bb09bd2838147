"""Evaluation under Megatron-Core: the pipeline's schedule forward only, over some micro-batches.

Nothing is kept for a backward. A stage holds the input that each of its chunks was last given, and, until the next
forward has returned, the output that it sent last. Gradient buffers stay where they are, and so do the fp32 gradients
that the optimizer read. The last stage keeps the loss of each micro-batch, and no logits.
Source: megatron/core/pipeline_parallel/schedules.py, with forward_only; megatron/training/training.py, evaluate
(0.14 to 0.19).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32
from trainledger.facts.evaluation import FORWARD_ONLY
from trainledger.ledger.beyond import EVALUATION
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_engine import mask_line
from trainledger.ledger.mega_once import SHARED, once
from trainledger.ledger.mega_passes import Edges, Pass, edges_of, masked, mega_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.mega_run import Chunk, Rank
from trainledger.lines.line import Account
from trainledger.lines.stream import Events, Segment, net
from trainledger.plan.beyond import Evaluation
from trainledger.plan.running import Recompute

MOMENT = f"{EVALUATION}: forward"
ROUNDS = (False, True)  # whether an earlier micro-batch ran: every further one is as the second
Gather = Callable[[Rank, Pass, Chunk], Pass]


def evaluating(rank: Rank, batch: int | None, sequence: int | None) -> Rank:
    """The rank of a forward without gradients, of so many sequences and tokens (None: as in training)."""
    job, plan = rank.job, rank.plan
    sizes = {"micro_batch": batch or plan.batch.micro_batch, "sequence": sequence or plan.batch.sequence}
    plan = plan.model_copy(update={"batch": plan.batch.model_copy(update=sizes)})
    setting = replace(
        job.run.setting, batch=plan.batch.micro_batch, sequence=plan.batch.sequence // plan.parallel.cp, training=False
    )
    mega = replace(mega_of(job), spread=False, hosted=None, away=0, delayed=False)
    run = replace(job.run, setting=setting, software=replace(job.run.software, mega=mega), recompute="none", modules=())
    return replace(rank, plan=plan, job=replace(job, run=run, trained=lambda weight: False))


def forwards(rank: Rank, gather: Gather) -> tuple[Edges, list[tuple[Segment, ...]]]:
    """A micro-batch forward through each chunk of a rank that evaluates: at its end nothing is there but what the stage
    was given and what it sends."""
    job, chunks = rank.job, rank.chunks
    walks = Walks(job, Leaves(False, job.run.setting.weights, {}, copied=True), Recompute(kind="none"))
    mask = mask_line(rank.plan, job)
    found = []
    for chunk in chunks:
        made = walks.run(chunk)
        back = tuple(reversed(made.forward))  # stands for a backward, which there is none of
        made = gather(rank, replace(made, backward=back, after=(made.forward, back)), chunk)
        made = masked(made, mask if chunk.first or chunk.last else None)
        left = net(made.forward)
        left[walks.edges.hidden] -= not chunk.last
        found.append((*made.forward, Segment("", deaths_of(left))))
    return edges_of(job), found


def deaths_of(left: Counter[int]) -> Events:
    """Deaths of lines, each as often as it is there."""
    return tuple(-line - 1 for line in left.elements())


def evaluation(rank: Rank, how: Evaluation, gather: Gather, before: Events) -> tuple[Segment, ...]:
    """What an evaluation takes after the steps; `before`: deaths of what the stages let go of as they are given
    another input."""
    own = evaluating(rank, how.micro_batch, how.sequence)
    edges, passes = forwards(own, gather)
    losses = _losses(own, how.batches)
    ending = (*losses, *(-event for event in losses))
    found = (
        Segment(MOMENT, (*before, *_begun(rank, own))),
        *_rounds(own.chunks, edges, passes, how.batches),
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


def _rounds(
    chunks: Sequence[Chunk], edges: Edges, passes: Sequence[tuple[Segment, ...]], batches: int
) -> Iterator[Segment]:
    """Two micro-batches in turn: chunks hold their inputs, and the schedule the output that it sent last."""
    sent = False
    given = [one for one in chunks if not one.first]
    for again in ROUNDS[: min(batches, len(ROUNDS))]:
        for chunk, segments in zip(chunks, passes, strict=True):
            received = () if chunk.first else (edges.hidden + 1, *(-edges.hidden - 1,) * again)
            yield Segment(MOMENT, received)
            yield from segments
            yield Segment(MOMENT, (-edges.hidden - 1,) * sent)
            sent = not chunk.last
    yield Segment(MOMENT, (-edges.hidden - 1,) * (len(given) + sent))


def _losses(rank: Rank, batches: int) -> Events:
    """One fp32 sum and one count of tokens for each micro-batch, where the loss is made."""
    if not any(chunk.last for chunk in rank.chunks):
        return ()
    dims = (Axis(Dim.ELEMENTS, len(("sum", "count"))),)
    line = rank.job.book.tensor(Account.LOGITS, "loss of a micro-batch, evaluated", dims, FP32, FORWARD_ONLY)
    return (line + 1,) * batches
