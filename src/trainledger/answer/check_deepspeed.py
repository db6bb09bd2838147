"""What DeepSpeed itself would refuse, or does in a way that has no rule here."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.deepspeed import (
    HOST_OPTIMIZERS,
    HOSTED,
    NO_MICS,
    QUANTIZER,
    SPLIT_CHECKED,
    SPLIT_OPTIMIZERS,
    STAGES,
    SWAP,
    ZERO3,
)
from trainledger.facts.dtypes import DTYPES
from trainledger.ledger.registered import slots_of
from trainledger.ledger.wrapper import PACKAGE, count, section_of, zero_of
from trainledger.lines.shards import rows_of
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

OPTIONS, SECOND, MICS = "parallel.options", "zero_hpz_partition_size", "mics_shard_size"
HALVES = ("bf16", "fp16")
WHOLE = ("none", "ddp")  # strategies under which its engine runs at stage 0


def deepspeed_problems(plan: Plan) -> Iterator[Problem]:
    """DeepSpeed's engine steps after backward; its ZeRO-3 divides the updates of its CPU Adam, by sub-groups, between
    host and device."""
    if plan.optimizer.in_backward and plan.parallel.strategy in WHOLE and deepspeed_of(plan):
        yield Problem("optimizer.in_backward", "found true under DeepSpeed", "its engine steps after backward")
    yield from _groups(plan)
    yield from _hosted(plan)
    yield from _cast(plan)
    section = section_of(plan, "offload_optimizer")
    ratio = section.get("ratio", 1)
    path, found = "parallel.options.offload_optimizer.ratio", f"found {ratio}"
    if not 0 <= ratio <= 1:
        yield Problem(path, found, "a share between 0 and 1 is needed")
    elif ratio < 1 and plan.parallel.strategy in STAGES and plan.parallel.strategy != ZERO3:
        if SPLIT_CHECKED.holds(_version(plan)):
            yield Problem(path, f"{found} with {plan.parallel.strategy}", "DeepSpeed divides it in stage 3 alone")
    elif ratio < 1 and plan.parallel.strategy == ZERO3:
        if "nvme" in (plan.offload.optimizer, section.get("device")):
            yield Problem(path, f"{found} with nvme", "what goes to NVMe is not divided", "Leave the ratio out.")
        if plan.optimizer.name not in SPLIT_OPTIMIZERS:
            yield Problem(path, f"{found} with {plan.optimizer.name}", "DeepSpeed divides its CPU Adam alone")


def _version(plan: Plan) -> str:
    return plan.stack.versions.get(PACKAGE, "")


def _groups(plan: Plan) -> Iterator[Problem]:
    """Groups of ranks within ZeRO-3's that share weights alone (hpZ) or all states (MiCS): each divides the world."""
    options, ranks = plan.parallel.options, degrees(plan).shard
    if plan.parallel.strategy != ZERO3:
        return
    second, group = (count(options, name, 1) for name in (SECOND, MICS))
    if second > 1 and ranks % min(second, ranks):
        allowed = f"its groups divide the {ranks} ranks"
        yield Problem(f"{OPTIONS}.{SECOND}", f"found {second}", allowed, f"Did you mean {_near(second, ranks)}?")
    if group > 1 and ranks % group:
        allowed = f"its groups divide the {ranks} ranks"
        yield Problem(f"{OPTIONS}.{MICS}", f"found {group}", allowed, f"Did you mean {_near(group, ranks)}?")
    version = _version(plan)
    if group > 0 and MICS in options and version and NO_MICS.holds(version):
        fix = f"Set {SECOND}, or name a release before {NO_MICS.release}."
        yield Problem(f"{OPTIONS}.{MICS}", f"given with DeepSpeed {version}", "that release has no MiCS", fix)


def _near(found: int, ranks: int) -> int:
    return max(one for one in range(1, min(found, ranks) + 1) if not ranks % one)


def _hosted(plan: Plan) -> Iterator[Problem]:
    """Optimizers that DeepSpeed cannot step on the host."""
    device = plan.offload.optimizer or section_of(plan, "offload_optimizer").get("device")
    if device in (None, "none") or plan.parallel.strategy not in STAGES or not deepspeed_of(plan):
        return
    if plan.stack.framework != LOW_LEVEL.framework and plan.optimizer.name not in HOST_OPTIMIZERS:
        found = f"found {plan.optimizer.name!r} with an offloaded optimizer"
        allowed = f"DeepSpeed steps {', '.join(HOST_OPTIMIZERS)} on the host ({HOSTED})"
        yield Problem("optimizer.name", found, allowed, "Set it to adamw, or leave offload.optimizer out.")


def _cast(plan: Plan) -> Iterator[Problem]:
    """What the plan keeps in fp32 though the engine casts all parameters (ZeRO-3's, as they are built)."""
    if not deepspeed_of(plan) or plan.precision.weights not in HALVES or plan.stack.framework == LOW_LEVEL.framework:
        return
    weights = plan.precision.weights
    kept = {"precision.norms": plan.precision.norms}
    if plan.adapter is not None and plan.parallel.strategy != ZERO3:
        kept["adapter.dtype"] = plan.adapter.dtype
    for path, dtype in kept.items():
        if dtype not in (None, weights):
            allowed = f"DeepSpeed's engine casts every parameter to {weights}"
            yield Problem(path, f"found {dtype!r} under {plan.parallel.strategy}", allowed, "Leave it out.")


def deepspeed_model_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Weights whose parts the 8-bit quantizer, or a buffer on the way to NVMe, cannot take."""
    options = plan.parallel.options
    if plan.parallel.strategy != ZERO3:
        return
    yield from _swapped(plan, model)
    if not options.get("zero_quantized_weights"):
        return
    ranks = {zero_of(plan, model.hidden.size, None).ranks, count(options, "zero_hpz_partition_size", 1)} - {1}
    for slot in slots_of(model):
        odd = [rows_of(slot.size, one) for one in sorted(ranks) if rows_of(slot.size, one) % QUANTIZER.unit]
        if odd:
            found = f"a part of {slot.name} has {odd[0]:,} elements"
            yield Problem("parallel.options.zero_quantized_weights", found, f"a multiple of {QUANTIZER.unit} is needed")
            return


def _swapped(plan: Plan, model: Model) -> Iterator[Problem]:
    """A part of a weight on its way to or from NVMe has to fit one buffer."""
    section = section_of(plan, "offload_param")
    if (plan.offload.params or section.get("device")) != "nvme":
        return
    size, ranks = count(section, "buffer_size", SWAP.weight_elements), zero_of(plan, model.hidden.size, None).ranks
    largest = max((slot for slot in slots_of(model) if slot.weight.packed is None), key=lambda slot: slot.size)
    part = rows_of(largest.size, ranks)
    if part > size and DTYPES[plan.precision.weights].bytes_of(part) >= SWAP.smallest:
        found = f"found {size:,}, and a part of {largest.name} has {part:,} elements"
        yield Problem(
            f"{OPTIONS}.offload_param.buffer_size", found, "a part has to fit one buffer", f"Set it to {part}."
        )
