"""Which layers every pipeline rank and model chunk holds, and where embedding, MTP layers and loss lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from trainledger.base.demands import Demand, problems_of
from trainledger.base.problems import InputError, Problem
from trainledger.facts.pipelines import (
    BOTH_ENDS,
    LAYOUT_LETTERS,
    LIGHT_ENDS,
    LOOP,
    PAIRED,
    PLACEMENT,
    TITAN_STAGES,
    VEE,
    VEE_SHAPE,
)
from trainledger.plan.layout import layout_problems, read_layout
from trainledger.plan.own_stages import TITAN_KEYS, Own, own_counts, own_problems, own_stages, stages_named
from trainledger.plan.schema import Plan

FIRST = "decoder_first_pipeline_num_layers"
LAST = "decoder_last_pipeline_num_layers"
LAYOUT = "pipeline_model_parallel_layout"
WITH_EMBEDDING = "account_for_embedding_in_pipeline_split"
WITH_LOSS = "account_for_loss_in_pipeline_split"
MEGATRON_KEYS = (FIRST, LAST, LAYOUT, WITH_EMBEDDING, WITH_LOSS)
_PP, _VPP, _OPTIONS = "parallel.pp", "parallel.vpp", "parallel.options"


@dataclass(frozen=True, slots=True)
class Chunk:
    """One model chunk of one pipeline rank: `layers` layers from number `first` on, and what lies at the model's ends.

    `mtp`: its multi-token-prediction layers; `loss`: whether the last norm, the head and the loss are here.
    """

    rank: int
    chunk: int
    first: int
    layers: int
    embedding: bool
    mtp: int
    loss: bool


@dataclass(frozen=True, slots=True)
class Split:
    """How the layers are to be spread over pipeline ranks and their chunks.

    `first`, `last`: layers of the first and the last rank where they are given; `layout`: Megatron-Core's text;
    `with_embedding`, `with_loss`: whether these count as a layer of their stage; `own`: how a framework other than
    Megatron-Core spreads them; `shape`: how chunks lie over ranks (facts.pipelines: LOOP, VEE_SHAPE, BOTH_ENDS).
    """

    layers: int
    ranks: int
    chunks: int = 1
    mtp: int = 0
    first: int | None = None
    last: int | None = None
    layout: str | None = None
    with_embedding: bool = False
    with_loss: bool = False
    own: Own | None = None
    shape: str = LOOP

    @property
    def count(self) -> int:
        """Stages that the model is cut into: one per rank and chunk, of which DualPipe holds each twice."""
        return self.ranks if self.shape == BOTH_ENDS else self.ranks * self.chunks


def schedule_of(plan: Plan) -> str:
    """The pipeline schedule: the plan's, else 1F1B, which Megatron-Core interleaves where a rank has several chunks."""
    given = plan.parallel.schedule
    return given if given is not None else "interleaved" if chunks_of(plan) > 1 else "1f1b"


def chunks_of(plan: Plan) -> int:
    """Model chunks per pipeline rank: the plan's vpp; left out, what the schedule or the layout has."""
    parallel = plan.parallel
    if "vpp" in parallel.model_fields_set or parallel.pp == 1:
        return parallel.vpp
    schedule = parallel.schedule or ""
    if schedule in PAIRED:
        return PAIRED[schedule].chunks
    if PLACEMENT.names.get(schedule) == VEE_SHAPE:
        return VEE.chunks
    if (named := stages_named(plan)) is not None:
        return max(named // parallel.pp, 1)
    if isinstance(layout := parallel.options.get(LAYOUT), str):
        try:
            return max(len(read_layout(layout)) // parallel.pp, 1)
        except InputError:
            return 1  # `stage_problems` says what is wrong with it
    return parallel.vpp


def split_of(plan: Plan, layers: int, mtp: int = 0) -> Split:
    """How a plan spreads `layers` layers and `mtp` MTP layers over its pipeline."""
    parallel, options = plan.parallel, plan.parallel.options
    return Split(
        layers, parallel.pp, chunks_of(plan), mtp, options.get(FIRST), options.get(LAST), options.get(LAYOUT),
        bool(options.get(WITH_EMBEDDING)), bool(options.get(WITH_LOSS)), own_stages(plan, layers),
        PLACEMENT.names.get(schedule_of(plan), LOOP),
    )  # fmt: skip


def stage_of(split: Split, rank: int, chunk: int) -> int:
    """The stage, in the order of the model, that a rank's chunk holds."""
    if split.shape == BOTH_ENDS or (split.shape == VEE_SHAPE and chunk):
        return rank if chunk == 0 else split.count - 1 - rank
    return chunk * split.ranks + rank


def stages(split: Split) -> tuple[Chunk, ...]:
    """Every chunk of every rank, by chunk and then by rank. Raises InputError with every rule that the split breaks."""
    if problems := stage_problems(split):
        raise InputError(problems)
    counts, mtp = _counts(split), [split.mtp * (at == split.count - 1) for at in range(split.count)]
    if split.layout is not None:
        letters = [[letter for letter, _ in stage] for stage in read_layout(split.layout)]
        mtp = [stage.count(LAYOUT_LETTERS.mtp) for stage in letters]
    firsts = [sum(counts[:at]) for at in range(len(counts))]
    chunks = []
    for chunk in range(split.chunks):
        for rank in range(split.ranks):
            at = stage_of(split, rank, chunk)
            ends = at == 0, at == split.count - 1
            chunks.append(Chunk(rank, chunk, firsts[at], counts[at], ends[0], mtp[at], ends[1]))
    return tuple(chunks)


def _counts(split: Split) -> list[int]:
    """Layers of every stage, in the order of the model."""
    if split.own is not None:
        return own_counts(split.own, split.layers, split.count)
    if split.layout is not None:
        return [sum(letter == LAYOUT_LETTERS.layer for letter, _ in stage) for stage in read_layout(split.layout)]
    if split.first is not None or split.last is not None:
        middle, ranks = _middle(split)
        each = [middle // ranks if ranks else 0] * split.ranks
        each[0] = each[0] if split.first is None else split.first
        each[-1] = each[-1] if split.last is None else split.last
        return [layers // split.chunks for _ in range(split.chunks) for layers in each]
    counts = [_total(split) // split.count] * split.count
    counts[0] -= split.with_embedding
    counts[-1] -= split.with_loss
    return counts


def _total(split: Split) -> int:
    return split.layers + split.with_embedding + split.with_loss


def _middle(split: Split) -> tuple[int, int]:
    """Layers and ranks that are left between a first and a last rank whose layers are given."""
    given = [one for one in (split.first, split.last) if one is not None]
    return split.layers - sum(given), split.ranks - len(given)


def strange_keys(plan: Plan) -> Iterator[Problem]:
    """Options by which another framework than the plan's own cuts a pipeline's stages: here nothing reads them."""
    framework, titan = plan.stack.framework, TITAN_STAGES.framework
    read = {titan: TITAN_KEYS, LIGHT_ENDS.framework: ()}.get(framework, MEGATRON_KEYS)
    for name in (*MEGATRON_KEYS, *TITAN_KEYS):
        if name not in read and plan.parallel.options.get(name) not in (None, False):
            reads = titan if name in TITAN_KEYS else "Megatron-Core"
            yield Problem(f"{_OPTIONS}.{name}", f"given with {framework}", f"{reads} reads it", "Leave it out.")


def stage_problems(split: Split) -> tuple[Problem, ...]:
    """Every rule of the framework that a split breaks, each with the nearest value that can be where there is one."""
    if split.own is not None:
        return own_problems(split.own, split.layers, split.ranks, split.count // split.ranks)
    if split.layout is not None:
        return tuple(_layout(split, split.layout))
    if split.first is None and split.last is None:
        return problems_of(_even(split))
    clash = tuple(_clashes(split, FIRST if split.first is not None else LAST))
    return clash + problems_of(_uneven(split))


def _layout(split: Split, layout: str) -> Iterator[Problem]:
    yield from _clashes(split, LAYOUT)
    try:
        read = read_layout(layout)
    except InputError as error:
        yield from error.problems
        return
    yield from layout_problems(read, split.ranks, split.layers, split.mtp)
    if len(read) % split.ranks == 0 and len(read) != split.count:
        found, fix = f"{split.chunks} with a layout of {len(read)} stages", f"Set it to {len(read) // split.ranks}."
        yield Problem(_VPP, found, f"the layout's stages over parallel.pp ({split.ranks}) is needed", fix)


def _clashes(split: Split, name: str) -> Iterator[Problem]:
    """Options that Megatron-Core does not take beside one another."""
    given = {WITH_EMBEDDING: split.with_embedding, WITH_LOSS: split.with_loss}
    if name == LAYOUT:
        given |= {FIRST: split.first is not None, LAST: split.last is not None}
    for other in (other for other, there in given.items() if there):
        yield Problem(f"{_OPTIONS}.{other}", f"given beside {name}", "one of the two is needed", f"Leave out {other}.")


def _even(split: Split) -> Iterator[Demand]:
    total, pp, per_rank = _total(split), split.ranks, split.count // split.ranks
    ends = " with embedding or loss" if total > split.layers else ""
    name = f"{total} layers{ends}"
    if total % pp:
        found = f"found {pp} for {name}"
        yield Demand(_PP, pp, found, f"a divisor of {total} is needed", lambda n: total % (n * per_rank) == 0)
    elif total % split.count:
        found = f"found {split.chunks} for {name} over pp {pp}"
        allowed = f"a divisor of the {total // pp} layers of a rank is needed"
        yield Demand(_VPP, split.chunks, found, allowed, lambda n: total // pp % n == 0)


def _uneven(split: Split) -> Iterator[Demand]:
    middle, ranks = _middle(split)
    for name, value in ((FIRST, split.first), (LAST, split.last)):
        if value is None:
            continue
        path, found = f"{_OPTIONS}.{name}", f"found {value} of {split.layers} layers over pp {split.ranks}"
        allowed = f"the other ranks' layers must be spread evenly over {ranks} ranks x {split.chunks} chunks"
        yield Demand(path, value, found, allowed, partial(_spreads, split, middle + value))
        if split.chunks > 1:
            allowed = f"a multiple of parallel.vpp ({split.chunks}) is needed"
            yield Demand(path, value, found, allowed, lambda n: n % split.chunks == 0)
    if ranks == 0 and split.ranks > 1:  # its offsets of chunks divide by the number of middle ranks
        found = f"found {split.chunks} with {FIRST} and {LAST}, and no rank between them"
        yield Demand(_VPP, split.chunks, found, "Megatron-Core fails with more than one chunk", lambda n: n == 1)


def _spreads(split: Split, layers: int, given: int) -> bool:
    """Whether the middle ranks share evenly, chunk by chunk, what `given` leaves of the layers; no ranks, no layers."""
    left, ranks = layers - given, _middle(split)[1]
    if ranks <= 0 or left <= 0:
        return ranks == left == 0
    return left % (ranks * split.chunks) == 0
