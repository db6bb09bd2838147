"""The estimate of a plan by its trace: the same answer as by formula, folded from the lines of the code that ran.

DistributedDataParallel does not trace: its gradient buckets are joined by formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainledger.allocator.conf import Conf, conf_of
from trainledger.answer.estimate import Estimate, Parameters, architecture_of, device_of
from trainledger.answer.notes import notes_of
from trainledger.answer.trace_buckets import with_buckets
from trainledger.answer.traced import need_of, peak_of, shifted, told
from trainledger.answer.verdict import judge
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError, Problem, RefusedError
from trainledger.evidence.trace.job import Job, Tracer
from trainledger.evidence.trace.lines import Trace, trace_of
from trainledger.evidence.trace.record import Record
from trainledger.facts.overheads import communicators, context
from trainledger.facts.trace import REFUSED, SCOPE, UNSEEN
from trainledger.facts.versions import parse_version
from trainledger.ledger.rank import Ledger, extras_of
from trainledger.ledger.run import run_of
from trainledger.lines.line import Account
from trainledger.lines.moments import INIT
from trainledger.model.build import model_of
from trainledger.model.counts import active
from trainledger.model.program import Head, Model, Role, Weight
from trainledger.plan.degrees import degrees, global_batch
from trainledger.plan.lengths import at_longest
from trainledger.plan.schema import Plan

NAMED = (
    ("vocab_size", Dim.VOCAB), ("intermediate_size", Dim.FFN), ("ffn_dim", Dim.FFN), ("hidden_size", Dim.HIDDEN),
    ("n_embd", Dim.HIDDEN), ("head_dim", Dim.HEAD_DIM), ("num_attention_heads", Dim.HEADS), ("n_head", Dim.HEADS),
    ("num_key_value_heads", Dim.KV_HEADS),
)  # fmt: skip


def trace(plan: Plan, tracer: Tracer) -> Estimate:
    """The estimate of a resolved plan whose code `tracer` runs; where it says how long samples are, of the longest.

    Raises RefusedError naming every key that cannot be traced, and what `tracer` raises when the code fails.
    """
    check_traceable(plan)
    given, plan = plan, at_longest(plan)
    record = with_buckets(plan, tracer(job_of(plan)))
    conf = conf_of(plan.stack.allocator, {str(name): str(value) for name, value in plan.stack.env.items()})
    return replace(answer_of(plan, trace_of(record, dims_of(plan), conf), conf), plan=given)


def job_of(plan: Plan) -> Job:
    """What the tracing process is told of a plan."""
    architecture = architecture_of(device_of(plan))
    device = run_of(plan, architecture).software.device
    return Job(
        plan,
        architecture=architecture,
        workspace=extras_of(plan, architecture).workspace,
        processors=(device.count, device.threads),
        torch=plan.stack.versions.get("torch", ""),
    )


def check_traceable(plan: Plan) -> None:
    """Raise RefusedError with every key whose value cannot be traced, by name."""
    problems = list(_problems(plan))
    if problems:
        raise RefusedError(problems)


def _problems(plan: Plan) -> Iterator[Problem]:
    given = {
        "task": plan.task,
        "stack.framework": plan.stack.framework,
        "stack.loss": plan.stack.loss,
        "stack.compile": plan.stack.compile,
        "stack.attention": plan.stack.attention,
        "stack.recompute.kind": plan.stack.recompute.kind,
        "parallel.strategy": plan.parallel.strategy,
        "precision.master": plan.precision.master,
        "precision.main_gradients": plan.precision.main_gradients,
        "optimizer.name": plan.optimizer.name,
    }
    for path, value in given.items():
        allowed = SCOPE[path]
        if value not in allowed:
            named = ", ".join(str(one) for one in allowed if one is not None)
            yield Problem(path, f"found {value!r}", f"{named or 'nothing'} can be traced; formulas may know more")
    for path, what in REFUSED.items():
        section, _, key = path.partition(".")
        part = getattr(plan, section)
        found = getattr(part, key) if key else part
        if found:
            yield Problem(path, f"found {what}", "this cannot be traced; formulas may know it")
    for name in ("tp", "cp", "pp", "ep"):
        degree = getattr(degrees(plan), name)
        if degree > 1:
            yield Problem(f"parallel.{name}", f"found {degree}", "only 1 can be traced so far")


def dims_of(plan: Plan) -> dict[int, Dim]:
    """Names of dims by their size, as far as the plan's keys tell; where two have one size, the later name counts."""
    keys = plan.keys()
    found = {plan.batch.micro_batch: Dim.BATCH}
    for name, dim in reversed(NAMED):
        size = keys.get(name)
        if isinstance(size, int) and size > 1:
            found[size] = dim
    found[plan.batch.sequence] = Dim.SEQUENCE
    return found


def answer_of(plan: Plan, traced: Trace, conf: Conf) -> Estimate:
    """The estimate that a trace gives: every amount is a fold over its lines, reserved a replay of its stream."""
    moments = traced.moments
    device = device_of(plan)
    ledger = Ledger(traced.lines, moments, traced.segments)
    model = _model(plan, traced.record)
    ranks = degrees(plan).world
    outside = (context(architecture_of(device)), communicators(ranks))
    steps = tuple(one for one in moments if one.name != INIT)
    peak, within = (peak_of(traced, some) for some in (moments, steps))
    usable = device.usable_bytes if device else None
    need = need_of(traced.stream, conf, outside)
    notes = notes_of(plan, model, device)
    count, trained = traced.record.parameters
    return Estimate(
        plan=plan,
        model=model,
        parameters=Parameters(count, trained, active(model) if model.blocks else count),
        ledger=ledger,
        peak=peak,
        steps=within,
        device=shifted(peak.reserved, outside),
        verdict=judge(usable, need.low, need.expected, need.high),
        ranks=ranks,
        global_batch=global_batch(plan),
        notes=replace(
            notes,
            warnings=(*notes.warnings, *_told(plan, traced.record)),
            uncounted=(*notes.uncounted, *_unseen(plan)),
        ),
    )


def _model(plan: Plan, record: Record) -> Model:
    """The model as the formulas know it; of a family that they do not, its weights alone, as traced."""
    try:
        return model_of(plan)
    except InputError:
        weights = tuple(
            Weight(one.module, tuple(Axis(Dim.ELEMENTS, size) for size in one.shape), Role.MATRIX)
            for one in record.births
            if one.account == Account.WEIGHTS
        )
        kind = str(plan.keys().get("model_type", ""))
        return Model(kind, (), weights, (), Head((), ()), Axis(Dim.HIDDEN, 1), 0)


def _unseen(plan: Plan) -> Iterator[str]:
    """Sections of the plan that have no part in a trace."""
    return (f"{path}: {what}" for path, what in UNSEEN.items() if getattr(plan, path))


def _told(plan: Plan, record: Record) -> Iterator[str]:
    """Warnings of the trace: versions that differ, and what it says of itself."""
    for package, installed in record.versions.items():
        wanted = plan.stack.versions.get(package)
        if wanted and parse_version(wanted) != parse_version(installed):
            yield f"trace: the plan has {package} {wanted}, traced with {package} {installed}"
    yield from told(record)
