"""Notes on a model's type: what it is estimated as, and what stands beside its language model and is not counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainledger.base.units import format_size
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.linear_attention import CONVOLUTION, RULE
from trainledger.facts.towers import BESIDE
from trainledger.model.families.deepseek import KIMI, THIRD
from trainledger.model.operations_linear import CausalConv, DeltaRule
from trainledger.model.program import Model
from trainledger.model.towers import layers_of
from trainledger.plan.schema import Plan


def model_notes(plan: Plan, model: Model) -> Iterator[str]:
    """What a type is estimated as, where that is another, and which code its layers are taken to run."""
    specs = [op.spec for block in model.blocks for op in block.ops]
    if any(isinstance(spec, CausalConv) for spec in specs):
        yield _linear(plan, any(isinstance(spec, DeltaRule) for spec in specs))
    if plan.keys().get("model_type") == KIMI:
        yield (
            f"model.model_type: {KIMI} is estimated as {THIRD}, as which Transformers loads it inside Kimi K2.5; it "
            "has no class of its own"
        )


def _linear(plan: Plan, attends: bool) -> str:
    """Which code runs linear attention (where it `attends`) and convolutions over time, and what the other would
    change."""
    runs, what = ((RULE, CONVOLUTION), "linear attention is") if attends else ((CONVOLUTION,), "convolutions are")
    packages = tuple(one.packages[0] for one in runs)
    there = [any(plan.stack.versions.get(name) for name in one.packages) for one in runs]
    counted = [name for name, has in zip(packages, there, strict=True) if has]
    missing = [name for name, has in zip(packages, there, strict=True) if not has]
    if not missing:
        return f"model.model_type: {what} counted by the kernels of {' and '.join(counted)}"
    other = f"{', the rest by' if counted else ''} Transformers' own PyTorch code, for want of {' and '.join(missing)}"
    kernels = f" the kernels of {' and '.join(counted)}" if counted else ""
    return (
        f"model.model_type: {what} counted by{kernels}{other}: its layers keep less where that is "
        f"installed, as stack.versions says with a release of it"
    )


def towers_beside(plan: Plan) -> Iterator[str]:
    """A line beside the verdict for each tower."""
    for key, config in _towers(plan):
        yield f"not counted: model.{key} ({_size(plan, config)}); the real run takes more"


def towers_uncounted(plan: Plan) -> Iterator[str]:
    """Towers for images and sound: their weights in bytes where their type is known."""
    for key, config in _towers(plan):
        name = config.get("model_type") or "a tower"
        yield (
            f"model.{key}: {name} beside the language model, with its projector: {_size(plan, config)}, where it is "
            "trained gradients and optimizer states as well, and what its forward keeps of each input; the real run "
            "takes more"
        )


def _towers(plan: Plan) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key in BESIDE:
        config = plan.keys().get(key)
        if isinstance(config, dict) and config:
            yield key, {"model_type": plan.keys().get("model_type"), **config}


def _size(plan: Plan, config: Mapping[str, Any]) -> str:
    count, dtype = layers_of(config), DTYPES[plan.precision.weights]
    if not count:
        return "weights of a size that is not known here"
    return f"at least {count:,} parameters, {format_size(dtype.bytes_of(count))} of weights in {dtype.name}"
