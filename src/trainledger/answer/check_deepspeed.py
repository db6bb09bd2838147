"""What DeepSpeed itself would refuse, or does in a way that has no rule here."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.deepspeed import QUANTIZER, SPLIT_OPTIMIZERS
from trainledger.ledger.registered import slots_of
from trainledger.ledger.wrapper import count, zero_of
from trainledger.lines.shards import rows_of
from trainledger.model.program import Model
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

ZERO3 = "zero3"
WHOLE = ("none", "ddp")  # strategies under which its engine runs at stage 0


def deepspeed_problems(plan: Plan) -> Iterator[Problem]:
    """DeepSpeed's engine steps after backward; its ZeRO-3 divides the updates of its CPU Adam, by sub-groups, between
    host and device."""
    if plan.optimizer.in_backward and plan.parallel.strategy in WHOLE and deepspeed_of(plan):
        yield Problem("optimizer.in_backward", "found true under DeepSpeed", "its engine steps after backward")
    given = plan.parallel.options.get("offload_optimizer")
    section = given if isinstance(given, dict) else {}
    ratio = section.get("ratio", 1)
    path, found = "parallel.options.offload_optimizer.ratio", f"found {ratio}"
    if not 0 <= ratio <= 1:
        yield Problem(path, found, "a share between 0 and 1 is needed")
    elif ratio < 1 and plan.parallel.strategy == ZERO3:
        if "nvme" in (plan.offload.optimizer, section.get("device")):
            yield Problem(path, f"{found} with nvme", "what goes to NVMe is not divided", "Leave the ratio out.")
        if plan.optimizer.name not in SPLIT_OPTIMIZERS:
            yield Problem(path, f"{found} with {plan.optimizer.name}", "DeepSpeed divides its CPU Adam alone")


def deepspeed_model_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Weights whose parts the 8-bit quantizer cannot take: it codes whole units of elements."""
    options = plan.parallel.options
    if plan.parallel.strategy != ZERO3 or not options.get("zero_quantized_weights"):
        return
    ranks = {zero_of(plan, model.hidden.size, None).ranks, count(options, "zero_hpz_partition_size", 1)} - {1}
    for slot in slots_of(model):
        odd = [rows_of(slot.size, one) for one in sorted(ranks) if rows_of(slot.size, one) % QUANTIZER.unit]
        if odd:
            found = f"a part of {slot.name} has {odd[0]:,} elements"
            yield Problem("parallel.options.zero_quantized_weights", found, f"a multiple of {QUANTIZER.unit} is needed")
            return
