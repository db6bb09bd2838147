"""A model as it is evaluated: nothing is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from trainledger.model.program import Attention, Dropout, Model, Op

CHANCE = "dropout"


@dataclass(frozen=True, slots=True)
class Keys:
    """Equal layers: how many, elements of a token's keys and of its values, the tokens that a window keeps (0: all)."""

    layers: int
    keys: int
    values: int
    window: int


def evaluated(model: Model) -> Model:
    """The model without dropout; all its weights are the same."""
    return replace(
        model,
        prologue=_quiet(model.prologue),
        blocks=tuple(replace(block, ops=_quiet(block.ops)) for block in model.blocks),
        head=replace(model.head, ops=_quiet(model.head.ops)),
    )


def keys_of(model: Model) -> Iterator[Keys]:
    """What every kind of layer makes keys and values of."""
    for block in model.blocks:
        for spec in (op.spec for op in block.ops):
            if isinstance(spec, Attention):
                values = spec.kv_heads * (spec.value or spec.head)
                yield Keys(block.count, spec.kv_heads * spec.head, values, spec.window)


def _quiet(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return tuple(replace(op, spec=_still(op.spec)) for op in ops)


def _still(spec: Any) -> Any:
    """The same without a chance of dropping anything, itself or in what it holds."""
    if isinstance(spec, Dropout):
        return Dropout(0.0)
    changed: dict[str, Any] = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name == CHANCE and value:
            changed[CHANCE] = 0.0
        elif is_dataclass(value) and not isinstance(value, type) and any(one.name == CHANCE for one in fields(value)):
            changed[field.name] = _still(value)
    return replace(spec, **changed) if changed else spec
