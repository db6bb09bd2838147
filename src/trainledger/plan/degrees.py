"""The degrees of a plan: how many ranks there are along each axis, with what was left out derived."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Degrees:
    """Ranks along each axis (all >= 1). `world` = dp x tp x cp x pp; `shard` = ranks that the strategy shards over."""

    world: int
    dp: int
    shard: int
    tp: int
    cp: int
    pp: int
    vpp: int
    ep: int


def degrees(plan: Plan) -> Degrees:
    """The degrees, with dp = world / (tp x cp x pp) and world = dp x tp x cp x pp where left out.

    Of a plan that `read_plan` accepted, these are consistent. A shard that was left out is dp.
    """
    parallel = plan.parallel
    given, inner = parallel.model_fields_set, parallel.tp * parallel.cp * parallel.pp
    dp = parallel.dp
    if "dp" not in given and "world" in given:
        dp = max(parallel.world // inner, 1)
    world = parallel.world if "world" in given else dp * inner
    return Degrees(world, dp, parallel.shard or dp, parallel.tp, parallel.cp, parallel.pp, parallel.vpp, parallel.ep)


def accumulation(plan: Plan) -> int:
    """Micro-batches per step on one data-parallel rank; derived from the global batch where left out."""
    batch = plan.batch
    if batch.global_batch is None or "accumulation" in batch.model_fields_set:
        return batch.accumulation
    return max(batch.global_batch // (batch.micro_batch * degrees(plan).dp), 1)


def global_batch(plan: Plan) -> int:
    """Sequences per optimizer step over all ranks: micro-batch x dp x accumulation."""
    return plan.batch.micro_batch * degrees(plan).dp * accumulation(plan)
