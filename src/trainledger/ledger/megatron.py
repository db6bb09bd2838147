"""The ledger of one rank under Megatron-Core: its stage's chunks, walked, in the order of the pipeline's schedule.

Source: megatron/core/pipeline_parallel/schedules.py (0.19.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.facts.code_read import ACCUMULATE
from trainledger.facts.dtypes import UINT8
from trainledger.facts.kernels import CUBLAS
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.megatron import FSDP, SETTLED
from trainledger.ledger.book import Book
from trainledger.ledger.host import Lines
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_aware import Aware, stepped_of
from trainledger.ledger.mega_away import away_lines
from trainledger.ledger.mega_buffers import laid_out, layer_wise, parameters_of, wrap_of
from trainledger.ledger.mega_composer import Composer
from trainledger.ledger.mega_engine import mask_line
from trainledger.ledger.mega_evaluation import evaluation
from trainledger.ledger.mega_flow import Flow
from trainledger.ledger.mega_forward import Gather
from trainledger.ledger.mega_fsdp import Gathering, Shards, main_of, outer_of, sharded_of
from trainledger.ledger.mega_hybrid import Hybrid, fraction_of, pins
from trainledger.ledger.mega_layerwise import LayerWise
from trainledger.ledger.mega_order import order_of
from trainledger.ledger.mega_passes import Pass, borders_of, masked, mega_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.mega_reports import Reports
from trainledger.ledger.mega_run import Rank, chunks_of, mega_run, parts_of
from trainledger.ledger.mega_states import Kept, States, stops
from trainledger.ledger.opening import Job
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import births, deaths
from trainledger.lines.actions import in_flight
from trainledger.lines.line import Account, Line
from trainledger.lines.local import local_model
from trainledger.lines.moments import CLIP, FORWARD, INIT, OPTIMIZER, STEPS, in_part
from trainledger.lines.stream import Segment
from trainledger.model.operations_megatron import Parallel
from trainledger.model.program import Model, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan


def rank_of(plan: Plan, model: Model, job: Job, stage: int) -> Rank:
    """The rank of a stage."""
    layers = sum(block.count for block in model.blocks)
    return Rank(plan, job, chunks_of(plan, layers, stage), stage)


def fullest(plan: Plan, model: Model) -> tuple[int, ...]:
    """Stages one of which is the fullest: of those that hold the same kinds of layers, the one with most in flight."""
    layers = sum(block.count for block in model.blocks)
    kinds = {layer: at for at, block in enumerate(model.blocks) for layer in block.layers}
    found: dict[tuple[object, ...], tuple[int, int]] = {}
    for stage in range(degrees(plan).pp):
        chunks = chunks_of(plan, layers, stage)
        key = tuple((tuple(kinds[at] for at in one.layers), replace(one, layers=())) for one in chunks)
        held = in_flight(order_of(plan, stage)).held
        found[key] = max(found.get(key, (0, 0)), (held, -stage))
    return tuple(sorted(-stage for _, stage in found.values()))


def run_of(rank: Rank, updates: Updates, workspace: int, each: bool = False) -> tuple[tuple[Segment, ...], Lines]:
    """All segments of a run on this rank, and lines of what lies on the host, with their copies; `each`: every action
    of the schedule is a moment of its own."""
    plan, job = rank.plan, rank.job
    kept = Kept.of(plan)
    if plan.parallel.strategy == FSDP.strategy:
        kept = replace(kept, master=main_of(plan))
    composer = Composer(rank, _workspace(job, workspace), each)
    with stops():
        states = states_of(rank, kept, updates)
        composer.add(INIT, states.build())
        states.parameters()
    leaves = Leaves(False, kept.weights, _waiting(rank), copied=True)
    walks = Walks(job, leaves, plan.stack.recompute)
    made = [walks.run(chunk) for chunk in rank.chunks]
    gather = Gathering.of(plan, kept) if plan.parallel.strategy == FSDP.strategy else None
    reports = Reports.of(rank)
    ways = (gather, gather and gather.first, gather and gather.again)
    passes, first, again = (_around(rank, made, each, reports) for each in ways)
    flow = Flow([borders_of(job, chunk) for chunk in rank.chunks], rank.chunks, composer.lane)
    composer.add(in_part(STEPS[0], FORWARD), births(composer.once))
    for number, name in enumerate(STEPS if each else (*STEPS, *STEPS[1:] * SETTLED.steps)):
        composer.add(in_part(name, FORWARD), [*(deaths(states.copies()) if number else []), *reports.before()])
        composer.run(name, flow, passes, again if number else first)
        composer.add(in_part(name, CLIP), [(gather.ended(rank), 1)] if gather else [])
        composer.add(in_part(name, OPTIMIZER), [*states.step(number == 0), *reports.after()])
    if plan.evaluation is not None:
        composer.segments += evaluation(rank, plan.evaluation, gather and gather.again, composer.held(flow, passes))
    hosted = states.host(pins(plan)) if isinstance(states, Hybrid) else ()
    return tuple(composer.segments), (*hosted, *walks.hosted, *away_lines(walks.away, order_of(plan, rank.stage)))


def _around(rank: Rank, made: Sequence[Pass], each: Gather | None, reports: Reports) -> list[Pass]:
    """Passes through a rank's chunks with what its strategy does around them, the batch's mask, and what is reported of
    the loss."""
    mask, found = mask_line(rank.plan, rank.job), list[Pass]()
    saved = mega_of(rank.job).engine is None and rank.job.run.setting.attention == Kernel.EAGER
    for one, chunk in zip(made, rank.chunks, strict=True):
        gathered = one if each is None else each(rank, one, chunk)
        held = masked(gathered, mask if chunk.fed else None, saved)
        found.append(reports.told(held, chunk))
    return found


def states_of(rank: Rank, kept: Kept, updates: Updates) -> States:
    """The rank's model states, with the parameters of all its chunks."""
    plan, book, fraction = rank.plan, rank.job.book, fraction_of(rank.plan)
    states: States = States(book, kept, updates)
    if plan.parallel.strategy == FSDP.strategy:
        states = Shards(book, kept, updates, sharded_of(plan), outer_of(plan))
    elif layer_wise(plan):
        states = LayerWise(book, kept, updates, (laid_out(plan), rank.places))
    elif fraction:
        states = Hybrid(book, kept, updates, fraction)
    elif stepped := stepped_of(plan, updates):
        states = Aware(book, kept, updates, stepped)
    chunks = [tuple(parameters_of(rank, chunk)) for chunk in rank.chunks]
    total = sum(one.elements for _, one in (pair for chunk in chunks for pair in chunk))
    for number, chunk in enumerate(chunks):
        states.add(chunk, wrap_of(plan, rank.stage, number, total))
    return states


def _waiting(rank: Rank) -> dict[Weight, int]:
    """Lines of gradients of weights that one chunk reads twice: that of layers for further tokens waits for the
    embedding's, and so does a tied output layer's, unless it is added to its buffer in place."""
    found = next((chunk for chunk in rank.chunks if chunk.first and chunk.last), None)
    if found is None:
        return {}
    book, dtype, model = rank.job.book, rank.job.run.setting.weights, rank.job.model
    read = {op.spec.weight for op in model.head.ops if isinstance(op.spec, Parallel) and not mega_of(rank.job).added}
    return {
        weight: book.tensor(Account.BACKWARD, f"first gradient of {weight.name}", weight.dims, dtype, ACCUMULATE)
        for weight in model.embeddings
        if found.further or weight in read
    }


def _workspace(job: Job, size: int) -> int:
    return job.book.add(
        Line(
            Account.WORKSPACE, "cuBLAS workspace of one thread", (Axis(Dim.ELEMENTS, size),), UINT8, size,
            Basis.COUNTED, CUBLAS.source,
        )
    )  # fmt: skip


def job_of(plan: Plan, model: Model, architecture: str) -> Job:
    """The rank's part of the model, as a job."""
    local = local_model(model, parts_of(plan))
    return Job(Book(), local, mega_run(plan, architecture), _all)


def _all(weight: Weight) -> bool:
    return True
