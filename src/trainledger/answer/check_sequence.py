"""Long sequences on Transformers' models: ranks that share a sequence, MLPs in tiles, checkpoints on the host."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.kernels_attention import WORDS, Kernel
from trainledger.facts.meshes import HEAD_EXCHANGE
from trainledger.facts.scope import OWN_MODELS
from trainledger.ledger.software import DEEPSPEED
from trainledger.ledger.tiled import fits
from trainledger.model.program import Attention, Model, SinkAttention
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

TILES = "parallel.options.tiled_mlp"


def exchanges(plan: Plan) -> bool:
    """Whether DeepSpeed's ranks exchange parts of the sequence for heads."""
    way = plan.parallel.options.get("cp_comm_type")
    return plan.parallel.cp > 1 and deepspeed_of(plan) and way in HEAD_EXCHANGE.names


def fetches(plan: Plan) -> bool:
    """Whether the inputs of recomputed layers wait in the host's memory, as a script around DeepSpeed leaves them."""
    given = plan.stack.recompute
    whole = given.kind == "full" and bool(given.reentrant)
    return plan.offload.activations == "cpu" and whole and plan.stack.framework == DEEPSPEED


def sequence_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan, whatever its model."""
    tiled = bool(plan.parallel.options.get("tiled_mlp"))
    if tiled and (plan.stack.framework in OWN_MODELS or plan.adapter is not None):
        what = plan.stack.framework if plan.adapter is None else "an adapter"
        yield Problem(TILES, f"found true with {what}", "MLPs of Transformers trained as they are can be estimated")
    if not exchanges(plan):
        return
    ranks, kernels = degrees(plan), WORDS[plan.stack.attention].kernels
    if Kernel.EAGER in kernels or Kernel.FLEX in kernels:
        allowed = "flash or sdpa is needed, as DeepSpeed asks"
        yield Problem("stack.attention", f"found {plan.stack.attention!r} with cp {ranks.cp}", allowed)
    if plan.batch.sequence % ranks.cp:
        near = max(plan.batch.sequence // ranks.cp, 1) * ranks.cp
        found = f"found {plan.batch.sequence}"
        yield Problem("batch.sequence", found, f"a multiple of cp {ranks.cp} is needed", f"Did you mean {near}?")
    every = ranks.dp * ranks.cp
    if ranks.shard != every and plan.parallel.strategy != "none":
        allowed = f"DeepSpeed shards over all {every} ranks of dp and cp"
        yield Problem("parallel.shard", f"found {ranks.shard}", allowed, f"Set it to {every}.")


def sequence_model_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of a model whose heads do not divide, or whose MLP has another shape."""
    specs = [op.spec for block in model.blocks for op in block.ops]
    if exchanges(plan):
        cp = plan.parallel.cp
        for spec in dict.fromkeys(one for one in specs if isinstance(one, Attention)):
            yield from _heads(spec, cp)
    if plan.parallel.options.get("tiled_mlp") and not all(fits(block.ops) for block in model.blocks):
        allowed = "down(act(gate(x)) * up(x)) without biases in every layer is what tiles can run"
        yield Problem(TILES, f"found true for {model.family}", allowed, "Leave it out.")


def _heads(spec: Attention, cp: int) -> Iterator[Problem]:
    heads, keys = spec.heads, spec.kv_heads
    found = f"found {cp} with {heads} heads and {keys} key and value heads"
    if isinstance(spec, SinkAttention):
        yield Problem("parallel.cp", found, "attention with sinks cannot be spread so far")
        return
    good = [one for one in range(1, heads + 1) if not heads % one and (not keys % one or not one % keys)]
    if cp not in good:
        near = min(good, key=lambda one: abs(one - cp))
        allowed = "a divisor of the heads that divides, or is a multiple of, those of keys and values"
        yield Problem("parallel.cp", found, allowed, f"Did you mean {near}?")
