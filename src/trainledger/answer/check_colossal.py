"""What of ColossalAI's plugins, and of losses over pairs, cannot be estimated: every such key by name."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.colossal import HYBRID, LOW_LEVEL, PAIR_LOSS
from trainledger.facts.dtypes import BF16, FP32
from trainledger.facts.sharding import OFFLOAD
from trainledger.plan.schema import Plan

LOSSES = ("full", "full-fp32")
KNOWN = "can be estimated so far"


def colossal_problems(plan: Plan) -> Iterator[Problem]:
    """Keys of a plan that ColossalAI runs, or whose task is one of its trainers' own."""
    own = plan.stack.framework == LOW_LEVEL.framework
    if own and plan.task in PAIR_LOSS.names and plan.stack.loss not in LOSSES:
        yield Problem("stack.loss", f"found {plan.stack.loss!r}", "the trainer reads all logits: full-fp32")
    if own:
        yield from _plugin(plan)
        yield from _dtypes(plan)


def _plugin(plan: Plan) -> Iterator[Problem]:
    strategy, known = plan.parallel.strategy, ", ".join(HYBRID.strategies)
    if strategy not in HYBRID.strategies:
        allowed = f"LowLevelZeroPlugin and HybridParallelPlugin ({known}) {KNOWN}"
        yield Problem("parallel.strategy", f"found {strategy!r}", allowed)
    if plan.offload.optimizer not in (None, *OFFLOAD.places):
        yield Problem("offload.optimizer", f"found {plan.offload.optimizer!r}", "LowLevelZeroPlugin has cpu only")
    if plan.optimizer.name not in LOW_LEVEL.optimizers:
        named = ", ".join(LOW_LEVEL.optimizers)
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r}", f"HybridAdam ({named}) {KNOWN}")
    if plan.optimizer.in_backward:
        yield Problem("optimizer.in_backward", "found true", "LowLevelZeroOptimizer steps after backward")
    if plan.quantization is not None:
        yield Problem("quantization.kind", f"found {plan.quantization.kind!r}", f"none {KNOWN} with ColossalAI")


def _dtypes(plan: Plan) -> Iterator[Problem]:
    precision = plan.precision
    allowed = {
        "weights": (BF16.name,),
        "compute": (BF16.name,),
        "gradients": (BF16.name,),
        "reduce": (None, BF16.name),
        "master": (None, FP32.name),
        "main_gradients": (None,),
        "autocast": (False,),
    }
    for name, values in allowed.items():
        value = getattr(precision, name)
        if value not in values:
            known = " or ".join(str(one) for one in values)
            yield Problem(f"precision.{name}", f"found {value!r}", f"{known} {KNOWN} with ColossalAI")
    if plan.adapter is not None and (plan.adapter.kind != "lora" or plan.adapter.dtype != precision.weights):
        found = f"found {plan.adapter.kind} in {plan.adapter.dtype}"
        yield Problem("adapter", found, "ColossalChat has LoRA in the weights' dtype")
