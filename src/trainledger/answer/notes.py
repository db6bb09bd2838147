"""What a reader should know beside the numbers: warnings with their reason, and options that are not counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.answer.precision import warnings
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.deepspeed import ANY_LINEAR, DEEPSPEED
from trainledger.facts.device_rows import Device
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.option_row import Effect
from trainledger.facts.options import find_option
from trainledger.facts.sharding import OFFLOAD
from trainledger.ledger.rank import EAGER, runs_eager
from trainledger.ledger.run import ZERO
from trainledger.ledger.strategy import fsdp_of
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Notes:
    """`warnings`, each with its reason, and what is `uncounted`, each with the direction of the error."""

    warnings: tuple[str, ...]
    uncounted: tuple[str, ...]


def notes_of(plan: Plan, model: Model, device: Device | None) -> Notes:
    """Every note on a plan."""
    return Notes(
        (*_precision(plan), *_attention(plan, model), *_zero(plan), *_offload(plan), *_device(device)),
        (*_compile(plan), *_options(plan), *_further(model), *_whole(plan)),
    )


def _precision(plan: Plan) -> Iterator[str]:
    precision = plan.precision
    master = DTYPES[precision.master] if precision.master else None
    for warning in warnings(DTYPES[precision.weights], master):
        yield f"precision: {warning.reason} ({warning.source})"


def _attention(plan: Plan, model: Model) -> Iterator[str]:
    if plan.stack.attention != EAGER and runs_eager(plan, model):
        yield f"stack.attention: {plan.stack.attention} has no cap on scores, so {model.family} runs eager attention"


def _zero(plan: Plan) -> Iterator[str]:
    strategy, ranks = plan.parallel.strategy, degrees(plan).shard
    if strategy not in ZERO:
        return
    what = {"zero1": "master weights and optimizer states", "zero2": "those and reduced gradients"}
    divided = what.get(strategy, "all model states")
    yield (
        f"parallel.strategy: {strategy} divides {divided} by {ranks:,}; activations, logits and what the loss makes of "
        "them are whole on every rank"
    )
    if strategy != "zero3" and plan.stack.framework != LOW_LEVEL.framework:  # which cuts every parameter evenly
        yield f"parallel.strategy: under {strategy} ranks differ by where their part begins and ends; one is shown"
    if plan.stack.framework == "transformers":
        yield (
            "optimizer: one group of parameters, as where DeepSpeed's configuration names the optimizer; the Trainer's "
            f"own has two, which keeps gradients a little longer ({DEEPSPEED.source})"
        )


def _offload(plan: Plan) -> Iterator[str]:
    if fsdp_of(plan) and plan.offload.params and not plan.offload.optimizer:
        yield f"offload.params: FSDP's optimizer steps on the host too, where its states lie ({OFFLOAD.source})"


def _whole(plan: Plan) -> Iterator[str]:
    """Models built outside zero.Init: which ones are, a plan does not say."""
    version = plan.stack.versions.get("deepspeed", "")
    given = plan.stack
    if plan.parallel.strategy == "zero3" and not ANY_LINEAR.holds(version) and given.recompute.kind == "none":
        yield (
            f"stack.versions.deepspeed: before {ANY_LINEAR.release} a model that was built whole keeps every gathered "
            f"weight from forward to backward: the ledger may be too low ({ANY_LINEAR.source})"
        )


def _compile(plan: Plan) -> Iterator[str]:
    if plan.stack.compile:
        yield "stack.compile: counted as eager; compiled code saves and makes other tensors: too high or too low"


def _options(plan: Plan) -> Iterator[str]:
    places = {
        "stack.options": plan.stack.options,
        "stack.env": plan.stack.env,
        "stack.allocator": plan.stack.allocator,
        "parallel.options": plan.parallel.options,
        "optimizer.options": plan.optimizer.options,
    }
    for place, options in places.items():
        for name in options:
            row = find_option(place, name)
            if row is not None and row.effect is Effect.NOT_COUNTED:
                yield f"{place}.{name}: {row.direction.value} ({row.source})"


def _further(model: Model) -> Iterator[str]:
    if model.further:
        yield "model: layers that predict further tokens are not made by Transformers' own class"


def _device(device: Device | None) -> Iterator[str]:
    if device is None:
        yield "device: none given; kernels of sm80 are assumed, and nothing is said about fitting"
    elif not device.architecture.startswith("sm"):
        yield f"device: no kernel rules for {device.architecture or 'its architecture'}; kernels of sm80 are assumed"
