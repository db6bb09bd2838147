"""A model of which a plan trains some modules: what is not trained is marked, weight by weight and layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from trainledger.model.mapped import mapped
from trainledger.model.names import Patterns, fits
from trainledger.model.program import Block, Linear, Model, Op, Weight

Change = Callable[[Weight], Weight]


def chosen(model: Model, patterns: Sequence[str]) -> Model:
    """The model whose weights that no pattern means are frozen; layers that differ by that are blocks of their own.

    A tied head's name means the embedding it shares.
    """
    alias = {op.spec.weight: op.name for op in model.head.ops if isinstance(op.spec, Linear)}

    def around(weight: Weight) -> Weight:
        named = (weight.name, *((alias[weight],) if weight in alias else ()))
        return weight if any(fits(name, patterns) for name in named) else replace(weight, frozen=True)

    asked = Patterns(patterns)
    return replace(
        model,
        prologue=_ops(model.prologue, around),
        embeddings=tuple(map(around, model.embeddings)),
        blocks=tuple(part for block in model.blocks for part in _parts(block, asked)),
        head=replace(model.head, ops=_ops(model.head.ops, around), weights=tuple(map(around, model.head.weights))),
        further=tuple(part for block in model.further for part in _parts(block, asked)),
    )


def _parts(block: Block, asked: Patterns) -> Iterator[Block]:
    """The block's layers by which of their weights are trained."""
    names = [weight.name for weight in block.weights]
    inner = asked.inner(names)
    groups: dict[tuple[bool, ...], list[int]] = {}
    for layer in block.layers:
        groups.setdefault(asked.below(f"{block.name}.{layer}", names, inner), []).append(layer)
    for trained, layers in groups.items():
        left = {weight for weight, kept in zip(block.weights, trained, strict=True) if not kept}

        def change(weight: Weight, left: set[Weight] = left) -> Weight:
            return replace(weight, frozen=True) if weight in left else weight

        weights = tuple(map(change, block.weights))
        yield replace(block, ops=_ops(block.ops, change), weights=weights, layers=tuple(layers))


def _ops(ops: Iterable[Op], change: Change) -> tuple[Op, ...]:
    return tuple(mapped(op, change) for op in ops)
