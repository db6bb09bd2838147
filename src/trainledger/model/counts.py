"""Parameters of a model: total, trainable, active per token; storages that are shared count once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Dim
from trainledger.model.program import Block, Fold, Looped, Model, Role, Weight


@dataclass(frozen=True, slots=True)
class Part:
    """Parameters of one part (elements): `layers` equal layers of it, `each` in one, `active` per token in one."""

    name: str
    layers: int
    each: int
    active: int

    @property
    def total(self) -> int:
        """Elements of all its layers."""
        return self.layers * self.each


def _own(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    return tuple(weight for weight in weights if not weight.tied)


def _used(weight: Weight, top_k: int) -> int:
    """Elements that one token passes through: of stacked experts, those it is routed to."""
    if weight.role is Role.EXPERT and weight.dims[0].dim is Dim.EXPERTS:
        return weight.elements // weight.dims[0].size * min(top_k, weight.dims[0].size)
    return weight.elements


def _part(name: str, layers: int, weights: Sequence[Weight], top_k: int = 0, experts: int = 0) -> Part:
    own = _own(weights)
    apart = sum(w.elements for w in own if experts and w.role is Role.EXPERT)
    active = sum(_used(w, top_k) for w in own) - apart + (apart // experts * min(top_k, experts) if experts else 0)
    return Part(name, layers, sum(w.elements for w in own), active)


def _block(block: Block) -> Part:
    experts = sum(len(op.spec.experts) for op in block.ops if isinstance(op.spec, Looped))
    part = _part(block.name, block.count, block.weights, block.top_k, experts)
    less = sum(_unused(fold, block.top_k) for op in block.ops for fold in op.folds)
    loops = [op.spec for op in block.ops if isinstance(op.spec, Looped)]
    added = sum(one.elements for spec in loops for low in spec.adapters if low for one in low.weights)
    less += added // experts * max(0, experts - block.top_k) if experts else 0
    return replace(part, active=part.active - less)


def _unused(fold: Fold, top_k: int) -> int:
    """Elements of an adapter of stacked experts that one token does not pass through."""
    axis = fold.weight.dims[0]
    if fold.weight.role is not Role.EXPERT or axis.dim is not Dim.EXPERTS:
        return 0
    return sum(one.elements for one in fold.weights) // axis.size * max(0, axis.size - top_k)


def by_block(model: Model) -> tuple[Part, ...]:
    """Embeddings, each kind of layer, the head: their totals sum to `total`."""
    return (
        _part("embeddings", 1, model.embeddings),
        *(_block(block) for block in (*model.blocks, *run_further(model))),
        _part("head", 1, model.head.weights),
    )


def total(model: Model) -> int:
    """Elements of all parameters that the framework's class makes; layers for further tokens where it runs them."""
    return sum(part.total for part in by_block(model))


def active(model: Model) -> int:
    """Elements that one token's forward uses: all but the routed experts it does not take (embeddings included)."""
    return sum(part.layers * part.active for part in by_block(model))


def run_further(model: Model) -> tuple[Block, ...]:
    """The layers for further tokens that the framework's class makes: whose operations are known."""
    return tuple(block for block in model.further if block.ops)


def further(model: Model) -> int:
    """Elements of the layers that predict further tokens, without the embedding and head they share."""
    return sum(_block(block).total for block in model.further)


def storages(model: Model) -> Iterator[tuple[str, Weight]]:
    """Every parameter that has a storage of its own, under its full name, in order of the blocks."""
    for weight in _own(model.embeddings):
        yield weight.name, weight
    for block in (*model.blocks, *run_further(model)):
        for layer in block.layers:
            for weight in _own(block.weights):
                yield f"{block.name}.{layer}.{weight.name}", weight
    for weight in _own(model.head.weights):
        yield weight.name, weight


def trainable(model: Model) -> int:
    """Elements of the parameters that are trained where no adapter is: all that are not frozen."""
    return sum(weight.elements * count for weight, count in kinds(model) if not weight.frozen)


def has_tuned(model: Model) -> bool:
    """Whether an adapter's run trains something of the model."""
    every = (model.embeddings, *(block.weights for block in model.blocks), model.head.weights)
    return any(weight.tuned for weights in every for weight in _own(weights))


def tuned(model: Model) -> int:
    """Elements that an adapter's run trains: the adapter's own, and those of modules trained whole beside it."""
    return sum(weight.elements for _, weight in storages(model) if weight.tuned)


def layered(model: Model) -> Iterator[tuple[tuple[Weight, ...], int]]:
    """Parameters that have a storage of their own, layer by layer: each kind of layer with how many equal ones there
    are."""
    yield _own(model.embeddings), 1
    for block in (*model.blocks, *run_further(model)):
        yield _own(block.weights), block.count
    yield _own(model.head.weights), 1


def kinds(model: Model) -> Iterator[tuple[Weight, int]]:
    """Every parameter that has a storage of its own, and how many equal ones there are."""
    for weights, count in layered(model):
        for weight in weights:
            yield weight, count
