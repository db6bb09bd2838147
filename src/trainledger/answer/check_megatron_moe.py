"""What of Megatron-Core's experts and latent attention cannot be estimated, or does not run: each by its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainledger.base.problems import Problem
from trainledger.facts.transformer_engine import NAME
from trainledger.ledger.mega_pieces import MODULES
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

SO_FAR = "can be estimated so far"
DISPATCHERS = ("allgather", "alltoall")
BALANCES = ("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none")


def expert_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of experts and latent attention, and of modules that run again."""
    keys = plan.keys()
    yield from _again(plan)
    if keys.get("num_nextn_predict_layers"):
        yield Problem(
            "model.num_nextn_predict_layers", f"found {keys['num_nextn_predict_layers']}",
            f"models without layers that predict further tokens {SO_FAR}",
        )  # fmt: skip
    if keys.get("kv_lora_rank") is not None and _local(plan):
        yield Problem(
            "model.kv_lora_rank", "attention through latents with Megatron's own layers",
            f"it {SO_FAR} with Transformer Engine's (stack.kernels: [te])",
        )  # fmt: skip
    if keys.get("num_experts") is not None:
        yield from _options(plan.parallel.options)
        yield from _degrees(plan, int(keys["num_experts"]))


def _local(plan: Plan) -> bool:
    return NAME not in plan.stack.kernels or plan.stack.options.get("transformer_impl") == "local"


def _again(plan: Plan) -> Iterator[Problem]:
    given = plan.stack.recompute
    for name in given.modules or () if given.kind == "selective" else ():
        if name not in MODULES:
            known = ", ".join(MODULES)
            yield Problem("stack.recompute.modules", f"found {name!r}", f"{known} {SO_FAR}")


def _options(options: Mapping[str, Any]) -> Iterator[Problem]:
    for name, known in (("moe_token_dispatcher_type", DISPATCHERS), ("moe_router_load_balancing_type", BALANCES)):
        value = options.get(name, known[0])
        if value not in known:
            yield Problem(f"parallel.options.{name}", f"found {value!r}", f"{', '.join(known)} {SO_FAR}")
    if options.get("moe_shared_expert_overlap"):
        need = f"shared experts that are computed before the routed ones {SO_FAR}"
        yield Problem("parallel.options.moe_shared_expert_overlap", "found true", need)


def _degrees(plan: Plan, experts: int) -> Iterator[Problem]:
    parallel, given = plan.parallel, degrees(plan)
    if experts % parallel.ep:
        yield Problem("parallel.ep", f"found {parallel.ep}", f"it must divide num_experts = {experts}")
    if given.tp > 1 and not parallel.sp:
        yield Problem("parallel.sp", "found false", f"Megatron-Core trains experts over tp = {given.tp} with sp only")
