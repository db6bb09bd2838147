"""What is trained: patterns that mean no module, parts that cannot be flattened with the rest, and nothing at all where
a backward is written into the schedule."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.dtypes import FP32
from trainledger.facts.peft import UPCAST
from trainledger.facts.sharding import FIRST
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.ledger.strategy import fsdp_of, joins_adapters, keeps_names, wraps_layers
from trainledger.ledger.units import units_of
from trainledger.model.build import WHOLE, upcasts
from trainledger.model.counts import storages
from trainledger.model.names import fits, is_wild, trimmed
from trainledger.model.program import Linear, Model
from trainledger.plan.schema import Plan

LOSSES = (FUSED, CHUNKED)  # make the head's gradient within the forward


def trainable_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """A pattern that fits nothing; nothing that is trained under a pipeline or a loss that makes gradients in its
    forward; a unit of FSDP1 of which some is trained."""
    yield from _upcast_problems(plan)
    if joins_adapters(plan) and not keeps_names(plan):
        allowed = "FSDP1 flattens weights that are all trained"
        fix = "Set it to true, or name stack.versions.accelerate, whose Trainer wraps what is trained apart."
        yield Problem("parallel.options.use_orig_params", "found false beside an adapter", allowed, fix)
    if plan.adapter is not None or plan.trainable in WHOLE:
        if plan.adapter is None and plan.trainable == "none" and (plan.parallel.pp > 1 or plan.stack.loss in LOSSES):
            allowed = "without a pipeline and with a plain loss it can be estimated so far"
            yield Problem("trainable", "found 'none' without an adapter", allowed, "Set it to all, or add an adapter.")
        return
    patterns = (plan.trainable,) if isinstance(plan.trainable, str) else plan.trainable
    alias = [f"{op.name}.weight" for op in model.head.ops if isinstance(op.spec, Linear)]
    names = [*alias, *(name for name, _ in storages(model))]
    every = "".join(f".{name}.\n" for name in names)
    for pattern in patterns:
        found = any(fits(name, (pattern,)) for name in names) if is_wild(trimmed(pattern)) else _within(every, pattern)
        if not found:
            allowed = "names of modules are needed: q_proj, mlp, model.layers.3, lm_head"
            yield Problem("trainable", f"{pattern!r} fits no module", allowed)
    yield from _flat_problems(plan, model)


def _upcast_problems(plan: Plan) -> Iterator[Problem]:
    """What is trained cast to fp32 beside frozen weights that stay as they are."""
    path = f"stack.options.{UPCAST.option}"
    if not plan.stack.options.get(UPCAST.option):
        return
    if plan.adapter is not None or plan.trainable in WHOLE:
        fix = "Set adapter.dtype: fp32." if plan.adapter else "Set precision.weights: fp32."
        yield Problem(path, "found true without a trainable that names modules", "it casts these alone", fix)
    elif fsdp_of(plan):
        allowed = "without FSDP, which shards weights of one dtype together, it can be estimated so far"
        yield Problem(path, f"found true with {plan.parallel.strategy}", allowed, "Set precision.weights: fp32.")
    elif upcasts(plan) and plan.precision.gradients != FP32.name:
        found = f"found {plan.precision.gradients!r} beside {path}"
        yield Problem("precision.gradients", found, "a gradient has its weight's dtype: fp32", "Leave it out.")


def _flat_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """FSDP1 flattens only weights that are all trained or all frozen, unless they keep their names.

    Source: torch/distributed/fsdp/_flat_param.py, _validate_tensors_to_flatten (v2.0 to v2.13).
    """
    if fsdp_of(plan) != FIRST or keeps_names(plan):
        return
    for unit in units_of(model, {}, wraps_layers(plan)).every():
        if len({member.weight.frozen for member in unit.members}) > 1:
            fix = "Set it to true, or train all of a layer, and of what stands around the layers all or nothing."
            found = f"false, and some of {unit.name} is trained"
            yield Problem("parallel.options.use_orig_params", found, "FSDP1 flattens weights that are all trained", fix)
            return


def _within(every: str, pattern: str) -> bool:
    """Whether a pattern without wild places is whole parts of one of these names."""
    return f".{trimmed(pattern)}." in every
