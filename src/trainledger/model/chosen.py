"""A model of which a plan trains some modules: what is not trained is marked, weight by weight and layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from trainledger.facts.dtypes import DType
from trainledger.model.mapped import mapped
from trainledger.model.names import Patterns, fits
from trainledger.model.program import Block, Linear, Model, Op, Weight

Change = Callable[[Weight], Weight]


def chosen(model: Model, patterns: Sequence[str], dtype: DType | None = None) -> Model:
    """The model whose weights that no pattern means are frozen; layers that differ by that are blocks of their own.

    A tied head's name means the embedding it shares. `dtype`: that of what is trained, where it is another.
    """
    alias = {op.spec.weight: f"{op.name}.weight" for op in model.head.ops if isinstance(op.spec, Linear)}

    def marked(weight: Weight) -> Weight:
        named = (weight.name, *((alias[weight],) if weight in alias else ()))
        return _marked(weight, any(fits(name, patterns) for name in named), dtype)

    asked = Patterns(patterns)
    return replace(
        model,
        prologue=_ops(model.prologue, marked),
        embeddings=tuple(map(marked, model.embeddings)),
        blocks=tuple(part for block in model.blocks for part in _parts(block, asked, dtype)),
        head=replace(model.head, ops=_ops(model.head.ops, marked), weights=tuple(map(marked, model.head.weights))),
        further=tuple(part for block in model.further for part in _parts(block, asked, dtype)),
    )


def around(model: Model) -> tuple[Weight, ...]:
    """The weights before and behind the layers."""
    return (*model.embeddings, *model.head.weights)


def _marked(weight: Weight, trained: bool, dtype: DType | None) -> Weight:
    if not trained:
        return replace(weight, frozen=True)
    return weight if dtype is None or weight.dtype is not None else replace(weight, dtype=dtype)


def _parts(block: Block, asked: Patterns, dtype: DType | None) -> Iterator[Block]:
    """The block's layers by which of their weights are trained."""
    names = [weight.name for weight in block.weights]
    inner = asked.inner(names)
    groups: dict[tuple[bool, ...], list[int]] = {}
    for layer in block.layers:
        groups.setdefault(asked.below(f"{block.name}.{layer}", names, inner), []).append(layer)
    for trained, layers in groups.items():
        marks = {weight: _marked(weight, kept, dtype) for weight, kept in zip(block.weights, trained, strict=True)}

        def change(weight: Weight, marks: dict[Weight, Weight] = marks) -> Weight:
            return marks.get(weight, weight)

        weights = tuple(map(change, block.weights))
        yield replace(block, ops=_ops(block.ops, change), weights=weights, layers=tuple(layers))


def _ops(ops: Iterable[Op], change: Change) -> tuple[Op, ...]:
    return tuple(mapped(op, change) for op in ops)
