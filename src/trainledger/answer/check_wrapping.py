"""Where FSDP wraps by size and the walk cannot follow: each by its key, with the reason and what to set."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.fsdp_qlora import NAME as FSDP_QLORA
from trainledger.facts.scope import OWN_MODELS
from trainledger.facts.sharding import FIRST, SIZE_WRAP
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.ledger.run import mixes
from trainledger.ledger.strategy import fsdp_of, least_of
from trainledger.ledger.wrapping import by_size, strays
from trainledger.model.program import Model, Norm, NormKind
from trainledger.plan.schema import Plan

POLICY, LEAST = "parallel.options.auto_wrap_policy", f"parallel.options.{SIZE_WRAP.option}"
LAYERS = "Set it to TRANSFORMER_BASED_WRAP"
RAISE = f"Raise it, or set {POLICY} to TRANSFORMER_BASED_WRAP"
OWN_WRAPPING = (*OWN_MODELS, FSDP_QLORA)  # their scripts bring their own policies


def wrapping_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan that wraps by size, whatever its model."""
    least = least_of(plan)
    if not least:
        if (
            least == 0
            and plan.parallel.options.get(SIZE_WRAP.option) == 0
            and not plan.stack.versions.get("accelerate")
        ):
            yield Problem(LEAST, "found 0", "every module would be a unit, those without weights too", "Set it above 0")
        return
    found = f"found {SIZE_WRAP.name}"
    if plan.stack.framework in OWN_WRAPPING:
        yield Problem(POLICY, f"{found} with {plan.stack.framework}", "its scripts wrap by layers", LAYERS)
    if fsdp_of(plan) != FIRST:
        why = "accelerate hands every module above the size to fully_shard, the list of layers too, which raises"
        yield Problem(POLICY, f"{found} with FSDP2", why, LAYERS)
    if plan.adapter is not None:
        why = (
            "units of frozen and trained weights are not followed (the Trainer, with stack.versions.accelerate, takes "
        )
        why += "PEFT's own policy instead)"
        yield Problem(POLICY, f"{found} beside an adapter", why, LAYERS)
    if plan.trainable != "all":
        why = "units with frozen and trained weights can be estimated by layers only"
        yield Problem(POLICY, f"{found} beside trainable: {plan.trainable}", why, LAYERS)
    given = plan.stack.recompute
    if given.reentrant or given.modules:
        what = "a reentrant recompute" if given.reentrant else "a recompute of single modules"
        why = "units inside a recomputed layer can be estimated without reentrance, of whole layers"
        yield Problem(POLICY, f"{found} beside {what}", why, f"{LAYERS}, or recompute to {{kind: full}}")


def wrapping_model_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of units that a model's modules make."""
    least = least_of(plan)
    if not least:
        return
    units = by_size(model, least)
    found = f"found {least}"
    for unit, reader in strays(model, units, plan.stack.loss in (CHUNKED, FUSED) and not model.head.pooled):
        why = f"{unit} would be a unit, but {reader} reads its weights outside of it"
        yield Problem(LEAST, f"{found}: {why}", "a sharded weight cannot be read", RAISE)
    norms = (op.spec for block in model.blocks for op in block.ops if isinstance(op.spec, Norm))
    layered = any(norm.kind is NormKind.LAYER for norm in norms)
    inside = any(spot.first == spot.last and spot.path and 0 < spot.first < units.last for spot in units.spots.values())
    if plan.precision.autocast and mixes(plan) and layered and inside:
        why = "FSDP casts what LayerNorm leaves in fp32 at each unit inside a layer, which is not counted"
        yield Problem(LEAST, f"{found} under autocast", why, RAISE)
