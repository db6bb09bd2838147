"""Which of DeepSpeed's wrappers of the optimizer runs a plan, with its settings.

Source: deepspeed/runtime/engine.py (0.9.5 to 0.19.8): _configure_optimizer, get_data_types.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainledger.facts.deepspeed import (
    ANY_LINEAR,
    CHECKS_BF16,
    CODED_COPIES,
    CODED_PARTS,
    LOCKED,
    MAX_LIVE,
    MAX_REUSE,
    PERSISTENCE,
    PINS,
    PINS_AS_TOLD,
    PREFETCH,
    QUANTIZED,
    REDUCE_BUCKET,
    REPLICATED_BF16,
    STAGES,
    SUB_GROUP,
    SWAP,
    Knob,
)
from trainledger.facts.devices import device_from
from trainledger.facts.dtypes import BF16, DTYPES, FP16, FP32
from trainledger.facts.option_row import AUTO
from trainledger.ledger.host import Kept
from trainledger.ledger.layout_bf16 import Bf16
from trainledger.ledger.layout_deepspeed import DeepSpeed
from trainledger.ledger.layout_stage0 import Bare, Fused, Unfused
from trainledger.ledger.layout_zero import ZeroFlat
from trainledger.ledger.layout_zero3 import Parts, ZeroParts
from trainledger.ledger.opening import Job
from trainledger.ledger.step import Updates
from trainledger.ledger.zero import Dtypes, Zero
from trainledger.ledger.zero3_codes import Codes
from trainledger.ledger.zero3_gathered import Fetching
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

PACKAGE = "deepspeed"
FUSED_ADAM = "apex-fused"  # the name of a plan for DeepSpeed's FusedAdam, which runs Apex's kernel


def wrapper_of(plan: Plan, job: Job, updates: Updates, rank: int | None) -> DeepSpeed:
    """The wrapper of a resolved plan that DeepSpeed runs, for one rank (None: the fullest)."""
    room = _room(plan)
    how = zero_of(plan, job.model.hidden.size, rank)
    # the optimizer is given gradients of what it updates
    updates = replace(updates, how=replace(updates.how, gradient=how.dtypes.master))
    if how.stage == STAGES["zero3"]:
        return ZeroParts(job, how, updates, _parts(plan, how, job))
    summed = how.dtypes.weights == BF16 and how.dtypes.accumulate == FP32
    if how.stage and not (how.stage == 1 and summed and not how.offload):
        return ZeroFlat(job, how, updates, room)
    return _whole(plan, how)(job, how, updates)


def _whole(plan: Plan, how: Zero) -> type[Bare]:
    """The wrapper that keeps weights or gradients whole."""
    if how.stage:
        return Bf16
    if how.dtypes.weights == FP32:
        return Bare
    if how.dtypes.weights == BF16 and not REPLICATED_BF16.holds(how.version):
        return Bf16
    return Fused if plan.optimizer.implementation == FUSED_ADAM else Unfused


def zero_of(plan: Plan, hidden: int, rank: int | None) -> Zero:
    """DeepSpeed's settings of a resolved plan; `hidden`: the model's hidden size, which `auto` values follow."""
    options = plan.parallel.options
    stage = STAGES.get(plan.parallel.strategy, 0)
    version = plan.stack.versions.get(PACKAGE, "")
    dtypes = _dtypes(plan)
    offload = _kept(plan, "optimizer", "offload_optimizer")
    return Zero(
        stage=stage,
        ranks=_ranks(plan, stage),
        rank=None if rank is None else rank % max(degrees(plan).dp, 1),
        version=version,
        dtypes=dtypes,
        bucket=elements_of(options, REDUCE_BUCKET, hidden),
        overlap=bool(options.get("overlap_comm", stage == STAGES["zero3"])),
        contiguous=bool(options.get("contiguous_gradients", True)) or offload is not None,
        scatter=bool(options.get("reduce_scatter", True)),
        round_robin=bool(options.get("round_robin_gradients")),
        offload=offload,
        checked=dtypes.weights == FP16 or (dtypes.weights == BF16 and CHECKS_BF16.holds(version)),
    )


def _room(plan: Plan) -> int | None:
    """Usable bytes of the plan's device; None where none is named."""
    if plan.device is None:
        return None
    found = device_from({"name": plan.device.name or "device", "memory": plan.device.memory})
    return found.usable_bytes if found else None


def _ranks(plan: Plan, stage: int) -> int:
    """Ranks that share the states: those of MiCS's shard group where there is one."""
    ranks = degrees(plan)
    group = plan.parallel.options.get("mics_shard_size")
    if stage == STAGES["zero3"] and isinstance(group, int | float) and group > 0:
        return int(group)
    return ranks.shard if stage else ranks.dp


def _parts(plan: Plan, how: Zero, job: Job) -> Parts:
    options, hidden = plan.parallel.options, job.model.hidden.size
    second = count(options, "zero_hpz_partition_size", 1)
    # a quantised model is never built under zero.Init
    whole = not options.get("zero_init", True) or plan.quantization is not None
    plain = not options.get("memory_efficient_linear", True) or (whole and not ANY_LINEAR.holds(how.version))
    fetching = Fetching(
        ranks=how.ranks,
        dtype=how.dtypes.weights,
        prefetch=elements_of(options, PREFETCH, hidden),
        live=elements_of(options, MAX_LIVE, hidden),
        reuse=elements_of(options, MAX_REUSE, hidden),
        persistence=elements_of(options, PERSISTENCE, hidden),
        overlap=how.overlap,
        offload=_kept(plan, "params", "offload_param") is not None,
        second=min(second, how.ranks) if second > 1 else 0,
        saved=plain,
        remade=plain or job.run.recompute == "full",  # without reentrance a checkpoint detaches what nodes save
    )
    stays = count(section_of(plan, "offload_param"), "max_in_cpu", SWAP.weights_kept)
    sub_group = elements_of(options, SUB_GROUP, hidden)
    ratio = section_of(plan, "offload_optimizer").get("ratio", 1)
    codes = _codes(how) if options.get("zero_quantized_weights") and QUANTIZED.holds(how.version) else None
    return Parts(fetching, sub_group, _kept(plan, "params", "offload_param"), stays, whole, ratio, codes)


def _codes(how: Zero) -> Codes:
    """The quantizer's kernels read and write fp16; older releases take its values for the weights' own dtype."""
    other = how.dtypes.weights != FP16
    return Codes(other and CODED_PARTS.holds(how.version), other and CODED_COPIES.holds(how.version))


def section_of(plan: Plan, name: str) -> dict[str, Any]:
    """A section of DeepSpeed's own configuration; empty where there is none."""
    given = plan.parallel.options.get(name)
    return given if isinstance(given, dict) else {}


def _kept(plan: Plan, key: str, name: str) -> Kept | None:
    """Where a part is offloaded to: as the plan's `offload` says, else the strategy's own section."""
    section = section_of(plan, name)
    place = getattr(plan.offload, key) or section.get("device")
    if place in (None, "none"):
        return None
    version, told = plan.stack.versions.get("deepspeed", ""), section.get("pin_memory")
    pinned = PINS.holds(version) if told is None else bool(told)
    masters = plan.parallel.strategy != "zero3" and (pinned or not PINS_AS_TOLD.holds(version))
    buffers = count(section, "buffer_count", 0), count(section, "buffer_size", 0)
    away = place == "nvme" and plan.parallel.strategy == "zero3"  # stages 1 and 2 take NVMe for the host
    return Kept(away, pinned, *buffers, masters, not LOCKED.holds(version))


def elements_of(options: dict[str, Any], knob: Knob, hidden: int) -> int:
    """A setting in elements: as given, as the Trainer fills it in, or the default."""
    given = options.get(knob.name)
    if given == AUTO and knob.auto is not None:
        return knob.auto.elements(hidden)
    return count(options, knob.name, knob.default)


def count(options: dict[str, Any], name: str, default: int) -> int:
    """A whole number, or the default where none is given."""
    given = options.get(name)
    return default if given is None or isinstance(given, str) else int(given)


def _dtypes(plan: Plan) -> Dtypes:
    """Gradients are kept in the weights' dtype unless `grad_accum_dtype`, or the plan's own word, says otherwise."""
    precision, options = plan.precision, plan.parallel.options
    weights = DTYPES[precision.weights]
    types = options.get("data_types")
    named = types.get("grad_accum_dtype") if isinstance(types, dict) else None
    accumulate = DTYPES.get(str(named)) or DTYPES[precision.gradients]
    reduce = DTYPES.get(str(options.get("communication_data_type"))) or DTYPES[precision.reduce or weights.name]
    master = DTYPES[precision.master] if precision.master else FP32
    return Dtypes(weights, accumulate, reduce, master)
