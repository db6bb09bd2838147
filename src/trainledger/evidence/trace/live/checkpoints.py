"""Which layers of a traced model are recomputed, and what is made to need a gradient for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint

from trainledger.base.problems import TraceError
from trainledger.facts.peft import OWN_CHECKPOINTS
from trainledger.plan.schema import Plan


def recompute_layers(plan: Plan, model: Any) -> None:
    """Turn recompute on as the plan's front end does. Raises TraceError for a policy that cannot be traced."""
    given = plan.stack.recompute
    if given.kind == "none":
        return
    if given.kind == "selective":
        raise TraceError("stack.recompute: full and none can be traced so far")
    how = {"use_reentrant": bool(given.reentrant)}
    if plan.stack.versions.get(OWN_CHECKPOINTS.package):
        _of_trained(model, partial(checkpoint, **how))
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=how)
    if plan.adapter is not None or (plan.trainable != "all" and not plan.stack.versions.get(OWN_CHECKPOINTS.package)):
        model.enable_input_require_grads()


def _of_trained(model: Any, recomputed: Callable[..., Any]) -> None:
    """Layers of which something is trained, whose inputs need a gradient from then on; others run as they are."""

    def around(call: Any, *inputs: Any, **named: Any) -> Any:
        layer = call.args[0] if call.args else call.func.__self__
        if not any(one.requires_grad for one in layer.parameters()):
            return call(*inputs, **named)
        next(one for one in inputs if one.is_floating_point()).requires_grad_(True)
        return recomputed(call, *inputs, **named)

    model._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=around)
