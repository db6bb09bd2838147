"""Micro-batches forward through a rank's chunks under Megatron-Core, with nothing kept for a backward.

A stage holds the input that each of its chunks was last given, and, until the next forward has returned, the output
that it sent last.
Source: megatron/core/pipeline_parallel/schedules.py, with forward_only (0.14 to 0.19).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_engine import mask_line
from trainledger.ledger.mega_passes import Borders, Pass, borders_of, masked, mega_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.mega_run import Chunk, Rank
from trainledger.lines.stream import Events, Segment, net
from trainledger.plan.running import Recompute

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


def forwards(rank: Rank, gather: Gather | None) -> tuple[list[Borders], list[tuple[Segment, ...]]]:
    """A micro-batch forward through each chunk of a rank that evaluates: at its end nothing is there but what the stage
    was given and what it sends."""
    job, chunks = rank.job, rank.chunks
    walks = Walks(job, Leaves(False, job.run.setting.weights, {}, copied=True), Recompute(kind="none"))
    mask = mask_line(rank.plan, job)
    found = []
    for chunk in chunks:
        made = walks.run(chunk)
        back = tuple(reversed(made.forward))  # stands for a backward, which there is none of
        if gather is not None:
            made = gather(rank, replace(made, backward=back, after=(made.forward, back)), chunk)
        made = masked(made, mask if chunk.fed else None)
        left = net(made.forward)
        left[borders_of(job, chunk).goes.hidden] -= not chunk.last
        found.append((*made.forward, Segment("", deaths_of(left))))
    return [borders_of(job, chunk) for chunk in chunks], found


def deaths_of(left: Counter[int]) -> Events:
    """Deaths of lines, each as often as it is there."""
    return tuple(-line - 1 for line in left.elements())


def rounds(
    chunks: Sequence[Chunk], borders: Sequence[Borders], passes: Sequence[tuple[Segment, ...]], batches: int
) -> Iterator[Segment]:
    """Two micro-batches in turn: chunks hold their inputs, and the schedule the output that it sent last."""
    sent: Events = ()
    given = [one.came.hidden for one, chunk in zip(borders, chunks, strict=True) if not chunk.first]
    for again in ROUNDS[: min(batches, len(ROUNDS))]:
        for chunk, ends, segments in zip(chunks, borders, passes, strict=True):
            came = ends.came.hidden
            yield Segment("", () if chunk.first else (came + 1, *(-came - 1,) * again))
            yield from segments
            yield Segment("", sent)
            sent = () if chunk.last else (-ends.goes.hidden - 1,)
    yield Segment("", (*(-line - 1 for line in given), *sent))
