"""Pipeline schedules as the ordered actions of one pipeline rank: forwards and backwards in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.demands import Demand, problems_of
from trainledger.base.problems import InputError, Problem
from trainledger.facts.pipelines import PAIRED, ROUNDS, VEE
from trainledger.lines.actions import Action, Recorder
from trainledger.lines.schedules_paired import paired, vee

GPIPE, ZB_V = "gpipe", "zb-v"
_PP, _VPP, _MICRO = "parallel.pp", "parallel.vpp", "batch.accumulation"
_GROUP = "parallel.options.microbatch_group_size_per_virtual_pipeline_stage"


class Flavour(StrEnum):
    """Whose code runs the schedule, where they differ: in how many micro-batches a chunk runs in a row."""

    MEGATRON = "megatron"
    TORCH = "torch"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A schedule over `ranks` pipeline ranks with `micro_batches` a step and `chunks` of the model on every rank.

    `group`: micro-batches that one chunk runs in a row before the next chunk does (None: Megatron-Core's default, the
    number of ranks); torch's own flavour derives it. `ahead`: forwards beyond the rule's before the first backward (1
    where Megatron-Core overlaps expert communication, overlap_moe_expert_parallel_comm). `schedule` is the plan's name.
    """

    schedule: str
    ranks: int
    micro_batches: int
    chunks: int = 1
    group: int | None = None
    flavour: Flavour = Flavour.MEGATRON
    ahead: int = 0

    @property
    def in_a_row(self) -> int:
        """Micro-batches that one chunk runs before the next chunk does (the last group may be smaller)."""
        if self.flavour is Flavour.TORCH:
            return self.micro_batches // _rounds(self.micro_batches, self.ranks)
        return self.group or self.ranks


def _rounds(micro_batches: int, ranks: int) -> int:
    return max(micro_batches // ranks, 1)


def actions(pipeline: Pipeline, rank: int) -> tuple[Action, ...]:
    """What pipeline rank `rank` (from 0) does in one step, in order.

    A backward that is split stands as INPUT and, later, WEIGHT; one that overlaps a forward comes right after it.
    Raises InputError with every reason why the schedule cannot run so, IndexError for a rank that there is not.
    """
    if problems := schedule_problems(pipeline):
        raise InputError(problems)
    if not 0 <= rank < pipeline.ranks:
        raise IndexError(f"rank {rank} of {pipeline.ranks} pipeline ranks")
    if pipeline.schedule in ROUNDS:
        return _rounded(pipeline, rank)
    if pipeline.schedule in PAIRED:
        return paired(PAIRED[pipeline.schedule], pipeline.ranks, rank, pipeline.micro_batches)
    if pipeline.schedule == ZB_V:
        return vee(VEE, pipeline.ranks, rank, pipeline.micro_batches)
    recorder = Recorder()
    for step in (recorder.forward, recorder.backward):
        for _ in range(pipeline.micro_batches):
            step(0)
    return recorder.actions


def _rounded(pipeline: Pipeline, rank: int) -> tuple[Action, ...]:
    rule, order = ROUNDS[pipeline.schedule], tuple(_chunks(pipeline))
    last, forwards = pipeline.chunks - 1, len(order)
    ahead = last * pipeline.in_a_row + rule.hop * (pipeline.ranks - 1 - rank) + pipeline.ahead
    ahead = min(ahead, forwards)
    recorder = Recorder()
    for chunk in order[:ahead]:
        recorder.forward(chunk)
    for step, chunk in enumerate(order):
        if ahead + step < forwards:
            recorder.forward(order[ahead + step])
        if rule.deferred is None:
            recorder.backward(last - chunk)
            continue
        recorder.input(last - chunk)
        if step >= rule.deferred * rank:
            recorder.weight()
    recorder.weights()
    return recorder.actions


def _chunks(pipeline: Pipeline) -> Iterator[int]:
    """The chunk of every forward in order: each runs a group of micro-batches, the last group what is left."""
    for start in range(0, pipeline.micro_batches, pipeline.in_a_row):
        size = min(pipeline.in_a_row, pipeline.micro_batches - start)
        for chunk in range(pipeline.chunks):
            yield from [chunk] * size


def schedule_problems(pipeline: Pipeline) -> tuple[Problem, ...]:
    """Every reason why the schedule cannot run with these ranks, micro-batches and chunks, under the plan's keys."""
    known = (GPIPE, ZB_V, *ROUNDS, *PAIRED)
    if pipeline.schedule not in known:
        return (Problem("parallel.schedule", f"found {pipeline.schedule!r}", f"one of {', '.join(known)} is needed"),)
    return problems_of(_demands(pipeline))


def _demands(pipeline: Pipeline) -> Iterator[Demand]:
    yield from _chunk_demands(pipeline)
    yield from _paired_demands(pipeline)
    rule, ranks, torch = ROUNDS.get(pipeline.schedule), pipeline.ranks, pipeline.flavour is Flavour.TORCH
    if torch and rule is not None and rule.deferred is None and not rule.interleaved:
        yield _rule(pipeline, _MICRO, pipeline.micro_batches, "as many as ranks are needed", lambda m: m >= ranks)
    if rule is None or rule.interleaved is False:
        return
    if torch:
        yield _rule(
            pipeline, _MICRO, pipeline.micro_batches, "no multiple of the number of rounds, micro-batches // ranks",
            lambda m: m % _rounds(m, ranks) == 0,
        )  # fmt: skip
    elif pipeline.chunks > 1:
        yield from _group_demands(pipeline)


def _chunk_demands(pipeline: Pipeline) -> Iterator[Demand]:
    name, value = pipeline.schedule, pipeline.chunks
    rule = ROUNDS.get(name)
    exact = VEE.chunks if name == ZB_V else PAIRED[name].chunks if name in PAIRED else None
    if exact is not None:
        allowed = f"{name} has {exact} model chunks on every rank"
        yield Demand(_VPP, value, f"{value} with {name}", allowed, lambda v: v == exact)
    elif rule is not None and rule.interleaved:
        yield Demand(_VPP, value, f"{value} with {name}", "it needs more than one model chunk a rank", lambda v: v > 1)
    elif rule is None or rule.interleaved is False:
        allowed = f"{name} has one model chunk on every rank; interleaved has more"
        yield Demand(_VPP, value, f"{value} with {name}", allowed, lambda v: v == 1)


def _paired_demands(pipeline: Pipeline) -> Iterator[Demand]:
    row = PAIRED.get(pipeline.schedule)
    if row is None:
        return
    least, ways = row.least * pipeline.ranks, row.directions
    yield _rule(pipeline, _MICRO, pipeline.micro_batches, f"{least} or more are needed", lambda m: m >= least)
    if ways > 1:
        yield _rule(pipeline, _MICRO, pipeline.micro_batches, "they come from both ends", lambda m: m % ways == 0)
        yield _rule(pipeline, _PP, pipeline.ranks, "its ranks have a middle", lambda p: p % ways == 0)


def _group_demands(pipeline: Pipeline) -> Iterator[Demand]:
    """Megatron-Core's bounds on the micro-batches that a chunk runs in a row, and on the rest in the last group."""
    ranks, count, group = pipeline.ranks, pipeline.micro_batches, pipeline.in_a_row
    if pipeline.group is not None:
        found, allowed = f"found {group}", f"from pp {ranks} to the {count} micro-batches is needed"
        yield Demand(_GROUP, group, found, allowed, lambda n: ranks <= n <= max(count, ranks))
    yield _rule(pipeline, _MICRO, count, f"{group} or more are needed", lambda m: m >= group)
    yield _rule(
        pipeline, _MICRO, count, f"the rest over groups of {group} must be 0 or at least pp {ranks}",
        lambda m: m < group or m % group == 0 or m % group >= ranks,
    )  # fmt: skip


def _rule(pipeline: Pipeline, path: str, value: int, allowed: str, fits: Callable[[int], bool]) -> Demand:
    what = "micro-batches" if path == _MICRO else "pipeline ranks"
    found = f"found {value} {what} with {pipeline.schedule} and pp {pipeline.ranks}"
    return Demand(path, value, found, allowed, fits)
