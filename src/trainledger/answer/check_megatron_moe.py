"""What of Megatron-Core's experts and latent attention cannot be estimated, or does not run: each by its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainledger.base.problems import Problem
from trainledger.facts.deepep import BACKEND, OPTIONS
from trainledger.facts.dtypes import FP8
from trainledger.facts.megatron_offload import AGAIN
from trainledger.ledger.mega_fp8 import DELAYED
from trainledger.ledger.mega_pieces import MODULES
from trainledger.ledger.mega_router import SINKHORN
from trainledger.model.megatron_own import own_layers
from trainledger.plan.schema import Plan

SO_FAR = "can be estimated so far"
DISPATCHERS = ("allgather", "alltoall", "flex")
ROUTERS = ("fp32", "fp64")
SHARED = "moe_shared_expert_overlap"
ROUNDED = ("moe_act", "layernorm")  # whose outputs are rounded to 8 bits
BALANCES = ("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none")


def expert_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of experts and latent attention, and of modules that run again."""
    keys = plan.keys()
    yield from _again(plan)
    if own_layers(plan) and plan.parallel.tp > 1:
        yield from _latents(plan, keys)
    if keys.get("num_experts") is not None:
        yield from _options(plan.parallel.options)
        yield from _spread(plan)


def _latents(plan: Plan, keys: Mapping[str, Any]) -> Iterator[Problem]:
    """Megatron's own projections down to latents are spread over tp by their outputs."""
    tp, turned = plan.parallel.tp, keys.get("qk_rope_head_dim")
    for name, more in (("q_lora_rank", 0), ("kv_lora_rank", turned if isinstance(turned, int) else 0)):
        rank = keys.get(name)
        if isinstance(rank, int) and (rank + more) % tp:
            beside = f" and {more} elements that turn" if more else ""
            yield Problem("parallel.tp", f"found {tp}", f"model.{name} {rank}{beside} are spread over it: a divisor")


def _again(plan: Plan) -> Iterator[Problem]:
    given = plan.stack.recompute
    modules = given.modules or () if given.kind == "selective" else ()
    for name in modules:
        if name not in (*MODULES, *AGAIN):
            known = ", ".join((*MODULES, *AGAIN))
            yield Problem("stack.recompute.modules", f"found {name!r}", f"{known} {SO_FAR}")
    keys, options = plan.keys(), plan.parallel.options
    routed = keys.get("num_experts") is not None
    low = plan.precision.fp8
    delayed = plan.precision.compute == FP8.name and ((low.recipe if low else None) or DELAYED) == DELAYED
    stops = (
        ("mla_up_proj", keys.get("kv_lora_rank") is None, "latent attention alone has it (model.kv_lora_rank)"),
        ("moe_act", routed and not options.get("moe_grouped_gemm"), "parallel.options.moe_grouped_gemm is needed"),
        ("shared_experts", bool(options.get(SHARED)), f"it cannot run again beside parallel.options.{SHARED}"),
        *((name, delayed, "delayed scaling cannot make it again: another precision.fp8.recipe") for name in ROUNDED),
    )
    for name, wrong, need in stops:
        if wrong and name in modules:
            yield Problem("stack.recompute.modules", f"found {name!r}", f"Megatron-Core stops: {need}")


def _options(options: Mapping[str, Any]) -> Iterator[Problem]:
    for name, known in (("moe_token_dispatcher_type", DISPATCHERS), ("moe_router_load_balancing_type", BALANCES)):
        value = options.get(name, known[0])
        if value not in known:
            yield Problem(f"parallel.options.{name}", f"found {value!r}", f"{', '.join(known)} {SO_FAR}")
    wide = options.get("moe_router_dtype")
    if wide is not None and wide not in ROUTERS:
        found = f"found {wide!r}"
        yield Problem("parallel.options.moe_router_dtype", found, f"Megatron-Core has {' and '.join(ROUTERS)}")
    if options.get(SHARED) and options.get("moe_token_dispatcher_type") == "allgather":
        need = "Megatron-Core needs the alltoall or the flex dispatcher"
        yield Problem(f"parallel.options.{SHARED}", "found true", need)
    yield from _capacity(options)


def _capacity(options: Mapping[str, Any]) -> Iterator[Problem]:
    """Where Megatron-Core stops over what an expert takes at most."""
    limit, pad = "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity"
    if options.get(limit) is not None and options.get("moe_router_load_balancing_type") == SINKHORN:
        yield Problem(f"parallel.options.{limit}", f"found {options[limit]}", f"Megatron-Core has none with {SINKHORN}")
    if not options.get(pad):
        return
    if options.get(limit) is None:
        yield Problem(f"parallel.options.{pad}", "found true", f"parallel.options.{limit} is needed")
    if options.get("moe_token_dispatcher_type") == "flex" and (options.get(OPTIONS[0]) or BACKEND) == BACKEND:
        yield Problem(f"parallel.options.{pad}", "found true", "Megatron-Core's flex dispatcher has none over DeepEP")


def _spread(plan: Plan) -> Iterator[Problem]:
    tp = plan.parallel.tp
    if tp > 1 and not plan.parallel.sp:
        yield Problem("parallel.sp", "found false", f"Megatron-Core trains experts over tp = {tp} with sp only")
