"""The plan's optimizer, as a script would make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from trainledger.base.problems import TraceError
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.plan.schema import Plan

Maker = Callable[..., Any]
MOMENTUM = True  # any number but zero: only that there is one counts here
MAKERS: Mapping[str, tuple[Maker, Mapping[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd-momentum": (torch.optim.SGD, {"momentum": MOMENTUM}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {}),
    "adafactor": (torch.optim.Adafactor, {}),
}


def make_optimizer(plan: Plan, params: Sequence[Any]) -> Any:
    """The optimizer over these parameters. Raises TraceError for one that cannot be traced, by name."""
    given = plan.optimizer
    if given.name not in MAKERS:
        raise TraceError(f"optimizer.name: {given.name} cannot be traced; these can: {', '.join(MAKERS)}")
    if given.in_backward or given.states:
        name = "in_backward" if given.in_backward else "states"
        raise TraceError(f"optimizer.{name}: cannot be traced so far")
    if OPTIMIZERS[given.name].chosen(given.implementation, given.options) == "transformers":
        from transformers.optimization import Adafactor

        return Adafactor(params, lr=1e-3, scale_parameter=False, relative_step=False)
    maker, more = MAKERS[given.name]
    return maker(list(params), lr=1e-3, **more, **_implementation(given.name, given.implementation))


def _implementation(name: str, implementation: str | None) -> dict[str, Any]:
    if name == "adafactor":  # runs as a loop whatever the plan says, unless foreach is asked for in code
        return {}
    if implementation == "loop":
        return {"foreach": False}
    if implementation == "fused":
        return {"fused": True}
    return {"foreach": True}


def counts_on_host(optimizer: Any) -> bool:
    """Whether it keeps its counts of steps on the host: not where a fused or capturable kernel reads them."""
    return not any(group.get(name) for group in optimizer.param_groups for name in ("fused", "capturable"))
