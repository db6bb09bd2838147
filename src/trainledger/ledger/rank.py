"""The ledger of one rank: lines, moments, and what they were made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import elements
from trainledger.base.units import MIB
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.kernels import CUBLAS
from trainledger.facts.megatron import FRAMEWORKS, LAYER_WISE, WRAPPED
from trainledger.facts.meshes import CP, DP, EDP, PP
from trainledger.facts.optimizer_bytes import StateOptions
from trainledger.facts.optimizer_kinds import Kind
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.optimizers_other import BNB_ROWS
from trainledger.facts.peft import OWN_CHECKPOINTS
from trainledger.facts.phases import DISTILL
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.trainer import TRAINER_BATCH, WIDE_STATES
from trainledger.facts.versions import at_least
from trainledger.ledger.beyond import beyond_of, segments_beyond
from trainledger.ledger.book import Book
from trainledger.ledger.host import waiting
from trainledger.ledger.host_stepped import frees_gradients
from trainledger.ledger.layout import Layout
from trainledger.ledger.layout_zero import ZeroFlat
from trainledger.ledger.megatron import fullest, job_of, rank_of
from trainledger.ledger.megatron import run_of as megatron_run
from trainledger.ledger.opening import Job, Trained
from trainledger.ledger.pipelined import Pipelined
from trainledger.ledger.pipelined_evaluation import evaluation
from trainledger.ledger.placed import placed
from trainledger.ledger.reference import Reference, reference_of
from trainledger.ledger.rules_liger import untrained
from trainledger.ledger.run import Run, run_of
from trainledger.ledger.step import Extras, Updates, compose
from trainledger.ledger.strategy import layout_of, pipelined, waits
from trainledger.ledger.teacher import teacher_of
from trainledger.ledger.tensor_parallel import spread
from trainledger.ledger.updates import managed_bytes
from trainledger.lines.line import Line
from trainledger.lines.stream import Moment, Segment, fold
from trainledger.model.decoder import weights_of
from trainledger.model.program import Attention, Model, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of, looks_for_unused
from trainledger.plan.mesh import coordinates, mesh_of, roles
from trainledger.plan.runs import Ranks
from trainledger.plan.runs import Run as Stretch
from trainledger.plan.schema import Plan

EAGER = "eager"
KEEPS_CAP = (EAGER, "unfused", "flash", "flex")  # implementations that cap scores themselves
STATES = {"first": Kind.FIRST, "second": Kind.SECOND, "momentum": Kind.MOMENTUM}


@dataclass(frozen=True, slots=True)
class Ledger:
    """One rank's lines and moments, in order; every moment's live lines add up to its bytes. `segments`: the births
    and deaths that both were folded from; `host`: lines in the host's memory, with their copies; `rank`: whose ledger
    it is, where ranks differ; `equals`: classes of ranks that hold the same, where these are known; `paged`: bytes of
    its optimizer's states in managed memory; `beside`: of a pipeline's fullest stage, the first and the last."""

    lines: tuple[Line, ...]
    moments: tuple[Moment, ...]
    segments: tuple[Segment, ...]
    host: tuple[tuple[Line, int], ...] = ()
    rank: int | None = None
    equals: tuple[Ranks, ...] = ()
    paged: int = 0
    beside: tuple[Ledger, ...] = ()


def rank_ledger(plan: Plan, model: Model, architecture: str, rank: int | None = None, each: bool = False) -> Ledger:
    """The ledger of one rank of a resolved plan (None: of the fullest) on a device of this architecture. `each`: every
    action of a pipeline's schedule is a moment of its own."""
    made = _ledger(plan, model, architecture, (rank, each))
    return replace(placed(made, plan), beside=tuple(placed(one, plan) for one in made.beside))


def _ledger(plan: Plan, model: Model, architecture: str, asked: tuple[int | None, bool]) -> Ledger:
    """Every line where its framework puts it."""
    rank = asked[0]
    if plan.stack.framework in FRAMEWORKS:
        return _megatron(plan, model, architecture, asked)
    ranks = degrees(plan)
    if ranks.pp > 1:
        return _fullest(plan, model, architecture, rank)
    made, layout = _alone(plan, model, architecture, rank)
    others = layout.ends[0][1:] if rank is None and isinstance(layout, ZeroFlat) else ()
    found = [made, *(_alone(plan, model, architecture, one)[0] for one in others)]
    fullest = max(found, key=lambda one: max(moment.allocated for moment in one.moments))
    if fullest is made or not isinstance(layout, ZeroFlat):
        return made
    both = sorted({fullest.rank or 0, layout.ends[1]})
    return replace(fullest, equals=tuple((Stretch(one, one),) for one in both))


def _alone(plan: Plan, model: Model, architecture: str, rank: int | None) -> tuple[Ledger, Layout]:
    """The ledger of one rank where there are no stages, and its layout."""
    job = _job(plan, model, architecture)
    extras, updates = extras_of(plan, architecture), updates_of(plan)
    layout = layout_of(plan, job, updates, extras.master, rank)
    beside = teacher_of if plan.task == DISTILL else reference_of
    return with_beyond(_laid(layout, updates, extras, beside(plan, job, updates, rank)), layout, plan), layout


def _job(plan: Plan, model: Model, architecture: str) -> Job:
    if plan.stack.framework == WRAPPED:
        return job_of(plan, model, architecture)
    model = spread(model, plan)
    run, wanted = run_of(plan, architecture), trained_of(plan)
    left = untrained(run.software, model) | unreached(plan, model, run, wanted) | unread(plan, model)
    return Job(Book(), model, run, lambda weight: weight not in left and wanted(weight))


def _laid(layout: Layout, updates: Updates, extras: Extras, beside: Reference | None = None) -> Ledger:
    segments, book = compose(layout.job, layout, updates, extras, beside), layout.job.book
    moments = fold(book.lines, segments)
    equals = tuple((Stretch(first, last),) for first, last in layout.equals)
    paged = managed_bytes(updates.row, layout.parameters, updates.options)
    host = (*layout.host(), *waiting(layout.job))
    return Ledger(tuple(book.lines), moments, tuple(segments), host, layout.rank, equals, paged)


def with_beyond(ledger: Ledger, layout: Layout, plan: Plan) -> Ledger:
    """The ledger with the moments that the plan has after its steps."""
    more = segments_beyond(layout, beyond_of(plan))
    if not more:
        return ledger
    lines, segments = layout.job.book.lines, (*ledger.segments, *more)
    return replace(ledger, lines=tuple(lines), segments=segments, moments=fold(lines, segments))


def _fullest(plan: Plan, model: Model, architecture: str, rank: int | None) -> Ledger:
    """The ledger of one rank of a pipeline whose stages FSDP2 shards (None: of a rank of the fullest stage)."""
    mesh = mesh_of(plan)
    stages = tuple(role.ranks for role in roles(mesh))
    wanted = range(len(stages)) if rank is None else (coordinates(mesh, rank)[PP],)
    extras, updates, made = extras_of(plan, architecture), updates_of(plan), []
    for stage in wanted:
        job = _job(plan, model, architecture)
        layout = pipelined(plan, job, updates, stage)
        made.append(_evaluated(_laid(layout, updates, extras), layout, plan))
    numbers = [stages[stage][0].first if rank is None else rank for stage in wanted]
    return _of_stages([*zip(numbers, made, strict=True)], stages)


def _of_stages(made: Sequence[tuple[int, Ledger]], equals: tuple[Ranks, ...]) -> Ledger:
    """The fullest of a pipeline's stages, each with the number of a rank; beside it the first and the last, which hold
    other things than layers."""
    own = [replace(ledger, rank=rank, equals=equals) for rank, ledger in made]
    most = max(own, key=lambda one: max(moment.allocated for moment in one.moments))
    ends = {one.rank: one for one in (own[0], own[-1])}
    return replace(most, beside=tuple(one for rank, one in ends.items() if rank != most.rank))


def _evaluated(ledger: Ledger, layout: Pipelined, plan: Plan) -> Ledger:
    """The ledger of a pipeline's rank with its evaluation after the steps."""
    if plan.evaluation is None or plan.stack.framework == PITHTRAIN:
        return ledger
    lines, segments = layout.job.book.lines, (*ledger.segments, *evaluation(layout, plan.evaluation))
    return replace(ledger, lines=tuple(lines), segments=segments, moments=fold(lines, segments))


def _megatron(plan: Plan, model: Model, architecture: str, asked: tuple[int | None, bool]) -> Ledger:
    """The ledger of one rank under Megatron-Core (None: of a rank of the fullest stage)."""
    mesh, (rank, each) = mesh_of(plan), asked
    stages = tuple(role.ranks for role in roles(mesh))
    wanted = fullest(plan, model) if rank is None else (coordinates(mesh, rank)[PP],)
    places = None if rank is None else _places(coordinates(mesh, rank), plan.parallel.cp)
    made = [_stage(plan, model, architecture, (stage, each, places)) for stage in wanted]
    if len(stages) == 1:
        return made[0]
    numbers = [stages[stage][0].first if rank is None else rank for stage in wanted]
    return _of_stages([*zip(numbers, made, strict=True)], stages)


def _places(where: Mapping[str, int], cp: int) -> tuple[int, int]:
    """A rank's numbers among the data-parallel ranks of dense weights, and of experts."""
    return where[DP] * cp + where[CP], where[EDP]


def _stage(plan: Plan, model: Model, architecture: str, how: tuple[int, bool, tuple[int, int] | None]) -> Ledger:
    job, (stage, each, places) = job_of(plan, model, architecture), how
    rank = replace(rank_of(plan, model, job, stage), places=places)
    segments, host = megatron_run(rank, updates_of(plan), extras_of(plan, architecture).workspace, each)
    return Ledger(tuple(job.book.lines), fold(job.book.lines, segments), segments, host)


def unreached(plan: Plan, model: Model, run: Run, trained: Trained) -> frozenset[Weight]:
    """Weights of layers under reentrant checkpoints none of whose inputs needs a gradient: they get none, whatever is
    asked of them. DeepSpeed's optimizer keeps master weights and states for them all the same, and ColossalAI's does;
    the first is counted as if they were trained, the second by its own layout.

    Source: torch/utils/checkpoint.py, CheckpointFunction (v2.4 to v2.13).
    """
    if (
        run.recompute != "reentrant"
        or run.every > 1
        or deepspeed_of(plan)
        or run.software.release(OWN_CHECKPOINTS.package)
        or plan.stack.framework == LOW_LEVEL.framework
    ):
        return frozenset()
    if run.asks_inputs(model) or any(trained(weight) for weight in model.embeddings):
        return frozenset()
    return frozenset(weight for block in model.blocks for weight in block.weights)


def unread(plan: Plan, model: Model) -> frozenset[Weight]:
    """Weights of the head that no operation reads (BERT's pooler in pre-training, its second bias where embeddings are
    not tied): they are there and get no gradient. DeepSpeed's optimizer has them all the same."""
    if plan.adapter is not None or deepspeed_of(plan):
        return frozenset()
    return frozenset(model.head.weights) - frozenset(weights_of(model.head.ops))


def runs_eager(plan: Plan, model: Model) -> bool:
    """Whether the model's class refuses PyTorch's fused call, which has no cap on scores, and takes eager attention.

    Source: transformers/models/gemma2/modeling_gemma2.py and integrations/sdpa_attention.py (5.24.0).
    """
    specs = (op.spec for block in model.blocks for op in block.ops)
    capped = any(isinstance(spec, Attention) and spec.softcap for spec in specs)
    return capped and plan.stack.attention not in KEEPS_CAP


def trained_of(plan: Plan) -> Trained:
    """Which weights of the plan's own model are trained: a function of a weight."""
    if plan.adapter is not None:
        return lambda weight: weight.tuned
    none = plan.trainable == "none"
    return lambda weight: not (none or weight.frozen)


def updates_of(plan: Plan) -> Updates:
    """The optimizer's row with the plan's implementation and the dtypes of its states."""
    given = plan.optimizer
    row = OPTIMIZERS[given.name]
    implementation = row.chosen(given.implementation, given.options)
    dtypes = tuple((STATES[name], DTYPES[dtype]) for name, dtype in given.states.items())
    gradient = DTYPES[plan.precision.gradients]
    older = row.blocks.older if row.blocks else ("", 0)
    version = plan.stack.versions.get("bitsandbytes")
    block = older[1] if older[0] and version and not at_least(version, older[0]) else None
    how = StateOptions(implementation=implementation, gradient=gradient, dtypes=dtypes, block=block)
    wide = WIDE_STATES.roles if row in BNB_ROWS and TRAINER_BATCH.package in plan.stack.versions else ()
    apart = LAYER_WISE.others if row.fallback and plan.stack.framework in FRAMEWORKS else ()
    return Updates(row, implementation, how, given.grad_clip is not None, wide, apart)


def extras_of(plan: Plan, architecture: str) -> Extras:
    """Workspace, master weights, main gradients and buckets."""
    precision, parallel = plan.precision, plan.parallel
    large = architecture in CUBLAS.architectures or any(
        architecture == name and at_least(plan.stack.versions.get("torch"), since) for name, since in CUBLAS.since
    )
    ddp = parallel.strategy == "ddp" and not deepspeed_of(plan)
    return Extras(
        workspace=_configured(plan.stack.env.get("CUBLAS_WORKSPACE_CONFIG"))
        or (CUBLAS.large if large else CUBLAS.default),
        master=DTYPES[precision.master] if precision.master and precision.weights != precision.master else None,
        main_gradients=DTYPES[precision.main_gradients] if precision.main_gradients else None,
        buckets=ddp,
        bucket_views=ddp and bool(parallel.options.get("gradient_as_bucket_view")),
        bucket_cap=int(parallel.options.get("bucket_cap_mb") or 0) * MIB,
        last_only=ddp and waits(plan),
        unused=looks_for_unused(plan),
        scaler=precision.grad_scaler,
        in_backward=plan.optimizer.in_backward,
        leaving=frees_gradients(plan),
    )


def _configured(text: object) -> int:
    """Bytes of `:KiB:COUNT` pairs; 0 where there are none."""
    parts = str(text or "").split(":")[1:]
    if not parts or len(parts) % CUBLAS.pair or not all(part.isdigit() for part in parts):
        return 0
    sizes, counts = parts[:: CUBLAS.pair], parts[1 :: CUBLAS.pair]
    return sum(int(size) * CUBLAS.unit * int(count) for size, count in zip(sizes, counts, strict=True))


def payload(line: Line) -> int:
    """Bytes of one copy's elements, before the allocator rounds."""
    return line.dtype.bytes_of(elements(line.dims))
