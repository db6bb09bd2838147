"""Defaults of verl's and OpenRLHF's trainers, as their own configurations have them."""

from __future__ import annotations

from trainledger.facts.default_row import Condition, DefaultRow
from trainledger.facts.default_words import FSDP, framework
from trainledger.facts.import_rl import (
    DEEPSPEED,
    OPENRLHF,
    OPENRLHF_FILLED,
    OPENRLHF_LOSS,
    VERL,
    VERL_FILLED,
    VERL_LOSS,
    WORKERS,
)
from trainledger.facts.import_rows import FilledRow

NAMES = {"verl": VERL_FILLED, "openrlhf": OPENRLHF_FILLED}  # by framework
FULL = ("stack.recompute.kind", ("full",))
SAMPLING = ("task", ("ppo", "grpo"))
# verl's other engine is Megatron-Core, which has defaults of its own
WRAPPED: Condition = ("parallel.strategy", FSDP)


def _filled(name: str, paths: tuple[str, ...], *when: Condition) -> tuple[DefaultRow, ...]:
    """What an importer fills in of these keys, for plans that name the framework."""
    return tuple(_row(one, framework(name), *when) for one in NAMES[name] if one.path in paths)


def _row(one: FilledRow, *when: Condition) -> DefaultRow:
    return DefaultRow(one.path, one.value, one.why, one.source, when)


STRATEGY = (
    DefaultRow("parallel.strategy", "fsdp1", "actor.strategy fsdp", VERL, (framework("verl"),)),
    *_filled("openrlhf", ("parallel.strategy",)),
)
FUSED_ADAM = DefaultRow(
    "optimizer.implementation",
    "apex-fused",
    "DeepSpeed's FusedAdam",
    DEEPSPEED,
    (framework("openrlhf"), ("optimizer.name", ("adamw", "adam"))),
)
PRECISION = _filled("verl", ("precision.weights", "precision.compute", "precision.reduce"), WRAPPED)
UPDATE = (*_filled("verl", ("optimizer.grad_clip",), WRAPPED), *_filled("openrlhf", ("optimizer.grad_clip",)))
STACK = (
    *_filled("verl", ("stack.attention", "stack.recompute"), WRAPPED),
    *_filled("openrlhf", ("stack.attention",)),
    DefaultRow("stack.recompute.reentrant", False, "use_reentrant False", WORKERS, (FULL, framework("verl"), WRAPPED)),
    DefaultRow("stack.recompute.reentrant", False, "use_reentrant False", OPENRLHF, (FULL, framework("openrlhf"))),
    _row(VERL_LOSS, framework("verl"), SAMPLING, WRAPPED),
    _row(OPENRLHF_LOSS, framework("openrlhf"), SAMPLING),
)
