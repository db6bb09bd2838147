"""Optimizers and quantised bases that cannot be where a strategy flattens or spreads weights: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.deepspeed import FP8_KEPT, STAGES, ZERO3
from trainledger.facts.optimizer_kinds import Optimizer, Shape
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.optimizers_other import BNB_ROWS, OF_PLAIN_TENSORS
from trainledger.facts.quantization import CODES_BESIDE, INT8_FSDP2
from trainledger.facts.sharding import FIRST, SECOND
from trainledger.ledger.strategy import fsdp_of
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

RANKED = (Shape.LOW_RANK, Shape.LOW_RANK_FACTORED, Shape.PROJECTOR)


def spread_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan whose weights are flattened (FSDP1, DeepSpeed's ZeRO) or spread over ranks."""
    strategy = plan.parallel.strategy
    row = OPTIMIZERS.get(plan.optimizer.name)
    if row is not None and _flattens(plan) and _matrices(row):
        allowed = f"it reads matrices, and {strategy} gives it flat parts ({row.source})"
        fix = "Set parallel.strategy: fsdp2 or ddp, or another optimizer."
        yield Problem("optimizer.name", f"found {row.name!r} under {strategy}", allowed, fix)
    elif row in BNB_ROWS and fsdp_of(plan) == SECOND:
        allowed = f"bitsandbytes' kernels take plain tensors, and FSDP2's parameters are DTensors ({OF_PLAIN_TENSORS})"
        fix = "Set it to adamw-torchao-8bit, or parallel.strategy to fsdp1."
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r} under {strategy}", allowed, fix)
    yield from _quantised(plan)


def _quantised(plan: Plan) -> Iterator[Problem]:
    strategy = plan.parallel.strategy
    given = plan.quantization
    if given is None:
        return
    path, found = "quantization.kind", f"found {given.kind!r} under {strategy}"
    patched = fsdp_of(plan) == SECOND and INT8_FSDP2.package in plan.stack.versions
    if given.kind == "int8" and (fsdp_of(plan) or strategy == ZERO3) and not patched:
        sources = f"{CODES_BESIDE}; but: {INT8_FSDP2.source}"
        allowed = f"its layers hold all their codes beside the parameter that is spread ({sources})"
        yield Problem(path, found, allowed, "Set it to nf4, or parallel.strategy to ddp or zero2.")
    elif given.kind == "fp8" and deepspeed_of(plan) and not FP8_KEPT.holds(plan.stack.versions.get("deepspeed", "")):
        allowed = f"before {FP8_KEPT.release} DeepSpeed's engine casts 8-bit floating-point parameters too"
        yield Problem(path, found, allowed, "Set it to nf4, or parallel.strategy to ddp or fsdp2.")
    elif given.kind == "fp8" and fsdp_of(plan) == FIRST:
        allowed = "FSDP1 flattens weights of one dtype together"
        yield Problem(path, found, allowed, "Set parallel.strategy: fsdp2.")
    if plan.parallel.options.get("zero_quantized_weights"):
        allowed = "codes of a quantised base are not coded once more"
        yield Problem(
            "parallel.options.zero_quantized_weights", f"found true beside {given.kind}", allowed, "Leave it out."
        )


def _flattens(plan: Plan) -> bool:
    """Whether the optimizer is given flat parts in the place of its parameters."""
    if plan.stack.framework == LOW_LEVEL.framework:
        return False
    if fsdp_of(plan) == FIRST:
        return degrees(plan).shard > 1
    return plan.parallel.strategy in STAGES and deepspeed_of(plan)


def _matrices(row: Optimizer) -> bool:
    """Whether an optimizer fails on what is no matrix, unless it is told which to leave to another."""
    return bool(row.fallback) or any(state.shape in RANKED for state in row.states)
