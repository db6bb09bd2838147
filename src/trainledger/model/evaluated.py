"""A model as it is evaluated, where nothing is dropped, or as a trainer left it that turns dropout off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from trainledger.facts.dropout import HIDDEN, SCORES
from trainledger.model.program import Attention, Dropout, Model, Op

CHANCE, IDLE = "dropout", "idle"


@dataclass(frozen=True, slots=True)
class Keys:
    """Equal layers: how many, elements of a token's keys and of its values, the tokens that a window keeps (0: all)."""

    layers: int
    keys: int
    values: int
    window: int


def evaluated(model: Model) -> Model:
    """The model without dropout; all its weights are the same."""
    return _through(model, _quiet)


def undropped(model: Model) -> Model:
    """The model that is trained with the modules of its dropout idle, an adapter's among them; what its family's code
    drops by a function of its own is dropped still."""
    kept = tuple(kind for kind, off in ((Dropout, HIDDEN), (Attention, SCORES)) if model.family not in off.families)
    return _through(model, lambda ops: _quiet(ops, kept, True))


def _through(model: Model, changed: Callable[[tuple[Op, ...]], tuple[Op, ...]]) -> Model:
    return replace(
        model,
        prologue=changed(model.prologue),
        blocks=tuple(replace(block, ops=changed(block.ops)) for block in model.blocks),
        head=replace(model.head, ops=changed(model.head.ops)),
    )


def keys_of(model: Model) -> Iterator[Keys]:
    """What every kind of layer makes keys and values of."""
    for block in model.blocks:
        for spec in (op.spec for op in block.ops):
            if isinstance(spec, Attention):
                values = spec.kv_heads * (spec.value or spec.head)
                yield Keys(block.count, spec.kv_heads * spec.head, values, spec.window)


def _quiet(ops: tuple[Op, ...], kept: tuple[type, ...] = (), trains: bool = False) -> tuple[Op, ...]:
    return tuple(op if isinstance(op.spec, kept) else replace(op, spec=_still(op.spec, trains)) for op in ops)


def _still(spec: Any, trains: bool) -> Any:
    """The same without a chance of dropping anything, itself or in what it holds."""
    if isinstance(spec, Dropout):
        return Dropout(0.0)
    changed: dict[str, Any] = {}
    for field in fields(spec):
        value = getattr(spec, field.name)
        if field.name == CHANCE and value:
            changed |= {CHANCE: 0.0} | ({IDLE: True} if trains and hasattr(spec, IDLE) else {})
        elif is_dataclass(value) and not isinstance(value, type) and any(one.name == CHANCE for one in fields(value)):
            changed[field.name] = _still(value, trains)
    return replace(spec, **changed) if changed else spec
