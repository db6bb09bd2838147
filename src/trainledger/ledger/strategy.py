"""The layout of model states that a plan's strategy makes."""

from __future__ import annotations

from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.sharding import FSDP2
from trainledger.facts.versions import at_least
from trainledger.ledger.fsdp1 import Flat
from trainledger.ledger.fsdp2 import How
from trainledger.ledger.layout import Layout, Schedule, Sharded
from trainledger.ledger.layout_flat import FlatSharded
from trainledger.ledger.micro import Job
from trainledger.ledger.run import deepspeed_of
from trainledger.ledger.step import Updates
from trainledger.ledger.units import units_of
from trainledger.ledger.wrapper import wrapper_of
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

ONE, TWO = 1, 2  # versions of FSDP
EARLY, LATE = "BACKWARD_PRE", "BACKWARD_POST"
KEEPING = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")  # sharding strategies under which gathered weights stay for backward


def layout_of(plan: Plan, job: Job, updates: Updates, master: DType | None, rank: int | None) -> Layout:
    """The layout of a resolved plan's model on one rank (None: the fullest); `master`: dtype of master weights, None
    without."""
    schedule = _schedule(plan, job)
    if fsdp_of(plan) == TWO:
        return Sharded(job, schedule, units_of(job.model, plan.stack.versions), _fsdp2(plan, job))
    if fsdp_of(plan) == ONE:
        return FlatSharded(job, schedule, units_of(job.model, {}), _fsdp1(plan, job))
    if deepspeed_of(plan):
        return wrapper_of(plan, job, updates, rank)
    return Layout(job, schedule, master)


def fsdp_of(plan: Plan) -> int:
    """Which FSDP a plan runs: 1, 2, or 0 for none."""
    given = plan.parallel
    if given.strategy == "hsdp":
        return int(given.options.get("fsdp_version") or TWO)
    return {"fsdp2": TWO, "fsdp1": ONE, "fsdp1-noshard": ONE}.get(given.strategy, 0)


def _schedule(plan: Plan, job: Job) -> Schedule:
    given = plan.parallel.options.get("no_sync")
    last_only = job.run.trainer if given is None else bool(given)
    return Schedule(job.run.accumulation, last_only, job.run.keeps_gradients)


def _fsdp2(plan: Plan, job: Job) -> How:
    precision, parallel = plan.precision, plan.parallel
    compute = DTYPES[precision.compute]
    torch = plan.stack.versions.get("torch")
    keeps = not parallel.reshard_after_forward
    return How(
        ranks=degrees(plan).shard,
        stored=job.run.stored,
        compute=compute,
        reduce=DTYPES[precision.reduce] if precision.reduce else compute,
        keeps=keeps,
        root_keeps=keeps or not at_least(torch, FSDP2.root),
        holds_input=at_least(torch, FSDP2.inputs),
        holds_output=parallel.strategy == "hsdp" and at_least(torch, FSDP2.outputs),
        reentrant=job.run.recompute == "reentrant",
    )


def _fsdp1(plan: Plan, job: Job) -> Flat:
    precision, parallel = plan.precision, plan.parallel
    options = parallel.options
    compute = DTYPES[precision.compute]
    sharding = str(options.get("sharding_strategy", "")).upper()
    whole = parallel.strategy == "fsdp1-noshard" or sharding == "NO_SHARD"
    named = options.get("use_orig_params")
    prefetch = str(options.get("backward_prefetch") or ("" if job.run.trainer else EARLY)).upper()
    return Flat(
        ranks=1 if whole else degrees(plan).shard,
        stored=job.run.stored,
        compute=compute,
        reduce=DTYPES[precision.reduce] if precision.reduce else compute,
        named=job.run.trainer if named is None else bool(named),
        keeps=not whole and (not parallel.reshard_after_forward or sharding in KEEPING),
        early=prefetch == EARLY,
        late=prefetch == LATE,
        reentrant=job.run.recompute == "reentrant",
    )
