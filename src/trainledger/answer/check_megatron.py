"""What of Megatron-Core's runs cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.check_megatron_moe import expert_problems
from trainledger.base.problems import Problem
from trainledger.facts.megatron import FAMILY, FRAMEWORKS, FSDP, LOSSES, STRATEGIES
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.plan.schema import Plan


def runs_megatron(plan: Plan) -> bool:
    """Whether Megatron-Core runs the plan."""
    return plan.stack.framework in FRAMEWORKS


def megatron_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan that Megatron-Core runs."""
    given = {
        "task": (plan.task, ("pretrain", "sft")),
        "model.model_type": (plan.keys().get("model_type"), (FAMILY,)),
        "parallel.strategy": (plan.parallel.strategy, STRATEGIES),
        "stack.loss": (plan.stack.loss, LOSSES),
        "precision.compute": (plan.precision.compute, ("fp32", "bf16", "fp16")),
        "precision.weights": (plan.precision.weights, ("fp32", "bf16", "fp16")),
        "adapter.kind": (plan.adapter.kind if plan.adapter else None, (None,)),
        "quantization.kind": (plan.quantization.kind if plan.quantization else None, (None,)),
        "trainable": (plan.trainable, ("all",)),
        "offload.optimizer": (plan.offload.optimizer, (None,)),
        "offload.params": (plan.offload.params, (None,)),
        "offload.activations": (plan.offload.activations, (None,)),
        "optimizer.in_backward": (plan.optimizer.in_backward, (False,)),
    }
    for path, (value, allowed) in given.items():
        if value not in allowed:
            known = ", ".join(str(one) for one in allowed)
            yield Problem(path, f"found {value!r} with {plan.stack.framework}", f"{known} can be estimated so far")
    options = plan.parallel.options
    if plan.parallel.strategy == FSDP.strategy and options.get(FSDP.option, FSDP.sharding) != FSDP.sharding:
        found = f"found {options[FSDP.option]!r} with {FSDP.strategy}"
        yield Problem(f"parallel.options.{FSDP.option}", found, f"{FSDP.sharding} can be estimated so far")
    yield from expert_problems(plan)
    if plan.optimizer.name not in OPTIMIZERS:
        known = ", ".join(sorted(OPTIMIZERS))
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r}", f"{known} can be estimated so far")
