"""What of Megatron's layers under DeepSpeed, and of those layers elsewhere, cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.megatron import FAMILY, FRAMEWORKS, WRAPPED
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.megatron_keys import type_problems
from trainledger.plan.schema import Plan

FRAMEWORK, TASKS = "stack.framework", ("pretrain", "sft")
ENGINE = ("zero1", "zero2")  # ZeRO-3 acts on modules of Transformers' classes alone so far
HALVES = ("bf16", "fp16")


def wrapped_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan that Megatron-DeepSpeed runs."""
    yield from type_problems(plan)
    given, ranks = plan.stack, degrees(plan)
    values = {
        "task": (plan.task, TASKS),
        "parallel.strategy": (plan.parallel.strategy, ENGINE),
        "stack.loss": (given.loss, ("vocab-parallel",)),
        "stack.recompute.kind": (given.recompute.kind, ("none", "full")),
        "precision.weights": (plan.precision.weights, HALVES),
        "precision.compute": (plan.precision.compute, HALVES),
        "adapter.kind": (plan.adapter.kind if plan.adapter else None, (None,)),
        "quantization.kind": (plan.quantization.kind if plan.quantization else None, (None,)),
        "trainable": (plan.trainable, ("all",)),
        "offload.activations": (plan.offload.activations, (None,)),
        "offload.params": (plan.offload.params, (None,)),
        "optimizer.in_backward": (plan.optimizer.in_backward, (False,)),
        "parallel.pp": (ranks.pp, (1,)),
        "parallel.cp": (ranks.cp, (1,)),
        "parallel.ep": (ranks.ep, (1,)),
    }
    for path, (value, allowed) in values.items():
        if value not in allowed:
            known = ", ".join(str(one) for one in allowed)
            yield Problem(path, f"found {value!r} with {WRAPPED}", f"{known} can be estimated so far")


def layer_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Megatron's own layers, which no other framework runs."""
    name = plan.stack.framework
    if (model.family == FAMILY) and name not in (*FRAMEWORKS, WRAPPED):
        allowed = f"{FAMILY} is a model of {', '.join((*FRAMEWORKS, WRAPPED))}"
        yield Problem(
            FRAMEWORK, f"found {name!r}", allowed, "Name one of them, or the model type of a Transformers class."
        )
