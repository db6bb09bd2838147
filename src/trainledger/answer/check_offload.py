"""What of an optimizer that one device steps on its host cannot be estimated, or cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.torchao_offload import FREED, HOST_STEP
from trainledger.ledger.host_stepped import frees_gradients, steps_on_host
from trainledger.plan.schema import Plan


def host_step_problems(plan: Plan) -> Iterator[Problem]:
    """torchao's CPUOffloadOptimizer: its optimizers, and what its freed gradients forbid."""
    if not steps_on_host(plan):
        if FREED in plan.optimizer.options:
            allowed = "it is a setting of an optimizer that one device steps on its host"
            yield Problem(f"optimizer.options.{FREED}", "given", allowed, "Set offload.optimizer: cpu")
        return
    name, path = plan.optimizer.name, "offload.optimizer"
    if name not in HOST_STEP.optimizers:
        known = ", ".join(HOST_STEP.optimizers)
        yield Problem("optimizer.name", f"found {name!r} stepped on the host", f"{known} can be estimated so far")
    if plan.precision.master or plan.precision.main_gradients:
        yield Problem(path, "found 'cpu' beside master weights", "it steps the weights themselves")
    if plan.optimizer.in_backward:
        yield Problem(path, "found 'cpu' beside optimizer.in_backward", "one of both takes the gradients")
    if frees_gradients(plan) and plan.batch.accumulation > 1:
        path = f"optimizer.options.{FREED}"
        yield Problem(path, "found true beside accumulation", "freed gradients are not added to", "Set it to false.")
    if frees_gradients(plan) and plan.optimizer.grad_clip is not None:
        path = f"optimizer.options.{FREED}"
        yield Problem(path, "found true beside grad_clip", "freed gradients have no norm", "Set grad_clip to null.")


def offloads_inputs(plan: Plan) -> bool:
    """Whether TRL offloads what recomputed layers of a Transformers model save."""
    return plan.stack.framework == "transformers" and plan.offload.activations == "cpu"


def activation_problems(plan: Plan) -> Iterator[Problem]:
    """TRL's offloaded activations: of recomputed layers on one device, without kernels that switch it off."""
    if not offloads_inputs(plan):
        return
    path, found = "offload.activations", "found 'cpu'"
    if plan.stack.recompute.kind != "full" or plan.parallel.strategy != "none":
        yield Problem(path, found, "only beside recomputed layers on one device can it be estimated so far")
    if plan.stack.kernels or plan.stack.compile:
        yield Problem(path, f"{found} beside fused kernels or compile", "plain layers can be estimated so far")
    if plan.quantization and plan.precision.norms not in (None, plan.precision.weights):
        why = "a quantised layer hands its input's dtype on: the first layer's input is narrower than others"
        yield Problem(path, f"{found} beside norms in {plan.precision.norms}", why, "Leave precision.norms out.")
