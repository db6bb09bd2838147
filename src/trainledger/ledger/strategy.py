"""The layout of model states that a plan's strategy makes."""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.deepspeed import STAGES
from trainledger.facts.dtypes import DTYPES, FP32, DType
from trainledger.facts.fsdp_qlora import NAME as FSDP_QLORA
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.preference_row import READ
from trainledger.facts.sharding import FIRST, FSDP2, HOOK, SECOND, SIZE_WRAP
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.facts.torchtitan_days import changed
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.facts.trainer import TRAINER_BATCH
from trainledger.facts.versions import at_least
from trainledger.ledger.fsdp1_how import EARLY, Flat
from trainledger.ledger.fsdp2_how import Ending, How, Reduced, Routed
from trainledger.ledger.host_stepped import HostStepped, smallest_of, steps_on_host
from trainledger.ledger.layout import Layout, Schedule, Stored
from trainledger.ledger.layout_amp import MixedPrecision
from trainledger.ledger.layout_flat import FlatSharded
from trainledger.ledger.layout_fsdp2 import Sharded
from trainledger.ledger.layout_lowlevel import LowLevelZero
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.ledger.losses_parallel import SPREAD
from trainledger.ledger.lowlevel import LowLevel
from trainledger.ledger.opening import Job
from trainledger.ledger.pipelined import Pipelined, rank_at
from trainledger.ledger.run import mixes, products_of, whole_adapters
from trainledger.ledger.scoring import Scoring
from trainledger.ledger.step import Updates
from trainledger.ledger.units import (
    Units,
    adapters_of,
    apart,
    beside_experts,
    by_layers,
    ignoring,
    staying,
    units_of,
    unsharded,
)
from trainledger.ledger.wrapper import wrapper_of
from trainledger.ledger.wrapping import by_size
from trainledger.model.program import Role
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan

NO_WRAP = "NO_WRAP"
APART = (FSDP_QLORA, TORCHTUNE)  # their own policies wrap trained leaves apart, as PEFT's does
KEEPING = ("SHARD_GRAD_OP", "_HYBRID_SHARD_ZERO2")  # sharding strategies under which gathered weights stay for backward


def layout_of(plan: Plan, job: Job, updates: Updates, master: DType | None, rank: int | None) -> Layout:
    """The layout of a resolved plan's model on one rank (None: the fullest); `master`: dtype of master weights, None
    without."""
    schedule = _schedule(plan, job)
    least = least_of(plan)
    wraps = least is None and wraps_layers(plan)
    if fsdp_of(plan) == SECOND:
        units, left = units_of(job.model, plan.stack.versions, wraps), unsharded(job.model)
        units = _titan(plan, ignoring(units, left) if left else units)
        return Sharded(job, schedule, units, _fsdp2(plan, job, rank or 0), updates)
    if fsdp_of(plan) == FIRST:
        how = _fsdp1(plan, job)
        units = by_size(job.model, least) if least else units_of(job.model, {}, wraps)
        if how.forward and plan.adapter is None and not how.reentrant and not least:
            units = by_layers(units)  # what was gathered ahead in forward is reduced later in backward
        policy = by_peft(plan) or (plan.adapter is not None and plan.stack.framework in APART)
        units = ignoring(units, adapters_of(job.model)) if whole_adapters(plan) else units
        return FlatSharded(job, schedule, apart(units) if policy else units, how, updates)
    if plan.stack.framework == LOW_LEVEL.framework:
        if plan.parallel.strategy not in STAGES:
            return MixedPrecision(job, schedule, dtypes_of(plan, DTYPES[plan.precision.master or FP32.name]), updates)
        return LowLevelZero(job, _low_level(plan), updates)
    if deepspeed_of(plan):
        return wrapper_of(plan, job, updates, rank)
    whole = replace(schedule, last_only=False)  # gradients stay where they are either way
    if steps_on_host(plan):
        return HostStepped(job, (whole, dtypes_of(plan, master)), updates, smallest_of(plan))
    return Layout(job, whole, dtypes_of(plan, master))


def _titan(plan: Plan, units: Units) -> Units:
    """torchtitan's own units: the head stays gathered, before it stood apart the last layer did, unless its policy is
    `always`; experts that are spread over ranks are sharded over what is left of these."""
    units = beside_experts(units) if degrees(plan).ep > 1 else units
    release, always = plan.stack.versions.get(TORCHTITAN, ""), plan.parallel.options.get("reshard_last_layer")
    if plan.stack.framework != TORCHTITAN:
        return units
    if holds(Change.APART, release):
        return replace(units, shut=bool(always))
    return units if always else staying(units, frozenset({units.last - 1}))


def _low_level(plan: Plan) -> LowLevel:
    return LowLevel(
        stage=STAGES[plan.parallel.strategy],
        ranks=degrees(plan).dp,
        weights=DTYPES[plan.precision.weights],
        master=DTYPES[plan.precision.master or FP32.name],
        bucket=LOW_LEVEL.bucket,
        offload=plan.offload.optimizer is not None,
    )


def dtypes_of(plan: Plan, master: DType | None = None) -> Stored:
    """The dtypes in which a plan keeps weights and norms."""
    weights = DTYPES[plan.precision.weights]
    return Stored(weights, DTYPES[plan.precision.norms] if plan.precision.norms else weights, master)


def fsdp_of(plan: Plan) -> int:
    """Which FSDP a plan runs: 1, 2, or 0 for none."""
    given = plan.parallel
    if given.strategy == "hsdp":
        return int(given.options.get("fsdp_version") or SECOND)
    return {"fsdp2": SECOND, "fsdp1": FIRST, "fsdp1-noshard": FIRST}.get(given.strategy, 0)


def pipelined(plan: Plan, job: Job, updates: Updates, at: int) -> Pipelined:
    """The layout of pipeline rank `at`, of the model that `job` has."""
    rank = rank_at(plan, job, at, lambda model: _titan(plan, units_of(model, plan.stack.versions)))
    return Pipelined(rank, _fsdp2(plan, job, 0), updates)


def policy_of(plan: Plan) -> str:
    """The wrapping policy that a plan names, in capitals; empty where it names none."""
    return str(plan.parallel.options.get("auto_wrap_policy", "")).upper()


def wraps_layers(plan: Plan) -> bool:
    """Whether the plan's policy, or PEFT's in its place, wraps anything within the model."""
    return policy_of(plan) != NO_WRAP or by_peft(plan)


def least_of(plan: Plan) -> int | None:
    """Elements that a unit has at least where a plan wraps by size; 0: nothing is wrapped; None: by layers or not."""
    if policy_of(plan) != SIZE_WRAP.name or not fsdp_of(plan) or by_peft(plan):
        return None
    given = plan.parallel.options.get(SIZE_WRAP.option)
    return (0 if _accelerated(plan) else SIZE_WRAP.least) if given is None else int(given)


def by_peft(plan: Plan) -> bool:
    """Whether PEFT's policy takes the place of the plan's: the Trainer hands it to FSDP1, whatever was chosen. Under
    FSDP2 the optimizer is made before, and the policy stays.

    Source: transformers/trainer.py, delay_optimizer_creation; distributed/fsdp.py, update_fsdp_plugin_peft (5.24.0).
    """
    return plan.adapter is not None and fsdp_of(plan) == FIRST and _accelerated(plan)


def _accelerated(plan: Plan) -> bool:
    """Whether accelerate prepares the model, with defaults of its own."""
    return TRAINER_BATCH.package in plan.stack.versions


def waits(plan: Plan) -> bool:
    """Whether gradients are reduced in a step's last micro-batch only: as said, or as accelerate and Fabric do."""
    given = plan.parallel.options.get("no_sync")
    return _accelerated(plan) or _fabric(plan) if given is None else bool(given)


def _fabric(plan: Plan) -> bool:
    """Whether Lightning Fabric runs the plan: FSDP1 with parameters under their own names, no_backward_sync."""
    return plan.stack.framework == LITGPT


def keeps_names(plan: Plan) -> bool:
    """Whether the parameters of an FSDP1 unit keep their own names: as said, as accelerate and Fabric ask for it, or
    since a unit of frozen weights and adapters can be flattened in no other way."""
    given = plan.parallel.options.get("use_orig_params")
    return _accelerated(plan) or _fabric(plan) or joins_adapters(plan) if given is None else bool(given)


def joins_adapters(plan: Plan) -> bool:
    """Whether FSDP1's units join adapters with the frozen weights around them."""
    apart = by_peft(plan) or plan.stack.framework in APART or whole_adapters(plan)
    return plan.adapter is not None and fsdp_of(plan) == FIRST and not apart


def _script(plan: Plan) -> bool:
    """Whether fsdp_qlora's script runs the plan: trained leaves apart, checkpoints inside the units of layers."""
    return plan.stack.framework == FSDP_QLORA


def _schedule(plan: Plan, job: Job) -> Schedule:
    return Schedule(job.run.accumulation, waits(plan), job.run.keeps_gradients)


def _fsdp2(plan: Plan, job: Job, rank: int) -> How:
    precision, parallel = plan.precision, plan.parallel
    compute = products_of(plan)
    torch, titan = plan.stack.versions.get("torch"), plan.stack.versions.get(TORCHTITAN, "")
    ranks, given = degrees(plan).shard, parallel.reshard_after_forward
    number = int(not given) if isinstance(given, bool) else given
    between = number if number == 1 or number < ranks else 0
    return How(
        ranks=ranks,
        stored=dtypes_of(plan).weights,
        compute=compute,
        reduce=DTYPES[precision.reduce] if precision.reduce else compute,
        between=between,
        root_keeps=between == 1 or not changed(FSDP2.root, FSDP2.root_day, torch or "", titan),
        reduced=Reduced(
            at_least(torch, FSDP2.inputs),
            parallel.strategy == "hsdp" and at_least(torch, FSDP2.outputs),
            at_least(torch, FSDP2.cuts),
            at_least(torch, FSDP2.named),
            parallel.strategy == "hsdp",
        ),
        reentrant=job.run.recompute == "reentrant",
        ending=_ending(plan, job.run.scoring),
        rank=rank % ranks,
        offload=plan.offload.params is not None,
        routed=_routed(plan, job),
    )


def _routed(plan: Plan, job: Job) -> Routed | None:
    """How routed experts are sharded where not as all else: over what is left of the ranks beside their own, along
    their second dim where there are more ranks than experts."""
    ranks, titan = degrees(plan), plan.stack.framework == TORCHTITAN
    every = (weight for block in job.model.blocks for weight in block.weights)
    count = next((weight.dims[0].size for weight in every if weight.role is Role.EXPERT), 0)
    over = max(ranks.shard * ranks.tp // (expert_tensor_degree(plan) * ranks.ep), 1) if ranks.ep > 1 else ranks.shard
    change = Change.BY_WIDTH if ranks.ep > 1 else Change.BY_WIDTH_ALONE
    by_width = titan and over > count > 0 and holds(change, plan.stack.versions.get(TORCHTITAN, ""))
    if ranks.ep == 1 and not by_width:
        return None
    return Routed(over, by_width, titan and ranks.ep > 1)


def _ending(plan: Plan, scoring: Scoring) -> Ending:
    if scoring.loss == SPREAD or scoring.form == READ or plan.stack.framework == TORCHTITAN:
        return Ending.OUTSIDE
    return Ending.FUSED if scoring.loss in (CHUNKED, FUSED) else Ending.INSIDE


def _again(plan: Plan, job: Job) -> bool:
    """Whether a reentrant checkpoint lies around FSDP1's units, so that the second forward is one of the unit too: as
    in Transformers before its layers held their own checkpoints. fsdp_qlora's script, and torch's
    `apply_activation_checkpointing`, put them inside."""
    outside = HOOK.holds(job.model.family, job.run.setting.transformers)
    return job.run.recompute == "reentrant" and outside and not _script(plan)


def _hidden(plan: Plan, job: Job) -> tuple[Dims, DType] | None:
    """A layer's input, where frozen units' hooks hold it."""
    setting = job.run.setting
    if not _again(plan, job) or plan.adapter is None:
        return None
    tokens = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    return (*tokens, job.model.hidden), setting.weights


def _fsdp1(plan: Plan, job: Job) -> Flat:
    precision, parallel = plan.precision, plan.parallel
    options = parallel.options
    mixed, compute = mixes(plan), products_of(plan)
    sharding = str(options.get("sharding_strategy", "")).upper()
    whole = parallel.strategy == "fsdp1-noshard" or sharding == "NO_SHARD"
    prefetch = str(options.get("backward_prefetch") or ("" if _accelerated(plan) else EARLY)).upper()
    return Flat(
        ranks=1 if whole else degrees(plan).shard,
        stored=dtypes_of(plan).weights,
        compute=compute if mixed else None,
        reduce=(DTYPES[precision.reduce] if precision.reduce else compute) if mixed else None,
        named=keeps_names(plan),
        keeps=not whole and (not parallel.reshard_after_forward or sharding in KEEPING),
        forward=bool(options.get("forward_prefetch")),
        backward=prefetch,
        reentrant=_again(plan, job),
        offload=plan.offload.params is not None,
        hidden=_hidden(plan, job),
        replicated=parallel.strategy == "hsdp",
    )
