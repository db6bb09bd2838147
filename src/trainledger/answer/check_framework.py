"""What of frameworks with model code of their own cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.scope import OWN_SCOPE
from trainledger.model.litgpt import unknown_targets
from trainledger.plan.schema import Plan


def framework_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan whose framework runs model code of its own; none for others."""
    allowed = OWN_SCOPE.get(plan.stack.framework)
    if allowed is None:
        return
    name, adapter = plan.stack.framework, plan.adapter
    given = {
        "parallel.strategy": plan.parallel.strategy,
        "stack.loss": plan.stack.loss,
        "stack.recompute.kind": plan.stack.recompute.kind,
        "stack.compile": plan.stack.compile,
        "quantization.kind": plan.quantization.kind if plan.quantization else None,
        "adapter.kind": adapter.kind if adapter else None,
    }
    for path, value in given.items():
        if value not in allowed[path]:
            known = ", ".join(str(one) for one in allowed[path] if one is not None)
            yield Problem(path, f"found {value!r} with {name}", f"{known} can be estimated so far")
    if plan.offload.activations and (plan.stack.recompute.kind != "full" or plan.parallel.strategy != "none"):
        allowed_where = "only beside recomputed layers on one device can it be estimated so far"
        yield Problem("offload.activations", f"found {plan.offload.activations!r} with {name}", allowed_where)
    for kernel in plan.stack.kernels:
        yield Problem("stack.kernels", f"found {kernel!r} with {name}", "it runs kernels of PyTorch alone")
    if plan.trainable not in ("all", "none"):
        yield Problem(
            "trainable", f"found {plan.trainable!r} with {name}", "all, or an adapter, can be estimated so far"
        )
    if adapter is None:
        return
    for key in adapter.options:
        yield Problem(f"adapter.options.{key}", f"given with {name}", "it is an option of PEFT")
    for module in adapter.train_extra:
        yield Problem("adapter.train_extra", f"found {module!r} with {name}", "its LoRA trains nothing beside it")
    targets = (adapter.targets,) if isinstance(adapter.targets, str) else adapter.targets or ()
    for module in unknown_targets(targets) if name == LITGPT else ():
        allowed_names = "modules of a Transformers model, or lora_query, lora_key, ... are needed"
        yield Problem("adapter.targets", f"found {module!r}", f"{name} has no switch for it; {allowed_names}")
