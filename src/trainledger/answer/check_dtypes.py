"""Where a strategy cannot shard what a model keeps in dtypes of its own."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.dtypes import DTYPES
from trainledger.ledger.rank import trained_of
from trainledger.model.build import upcasts
from trainledger.model.program import Model
from trainledger.plan.schema import Plan

PER_PARAMETER = ("fsdp2", "hsdp")  # which look at what is trained alone
FLAT = ("fsdp1", "fsdp1-noshard")


def dtype_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of weights with a dtype of their own, besides adapters, in a unit with others.

    Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _init_mp_dtypes; _flat_param.py,
    _validate_tensors_to_flatten (v2.13).
    """
    if plan.parallel.strategy not in (*PER_PARAMETER, *FLAT) or upcasts(plan):  # which is refused by its own name
        return
    trained, usual = trained_of(plan), DTYPES[plan.precision.weights]
    for weight in (one for block in model.blocks for one in block.weights):
        other = weight.dtype is not None and weight.dtype != usual and not weight.tuned and weight.packed is None
        if other and weight.dtype and (plan.parallel.strategy in FLAT or trained(weight)):
            found = f"found {plan.precision.weights!r} beside {weight.name}, which stays {weight.dtype.name}"
            allowed = f"{plan.parallel.strategy} shards weights of one dtype together, and PyTorch refuses others"
            yield Problem("precision.weights", found, allowed, "Keep weights in fp32 and compute in 16 bits.")
            return
