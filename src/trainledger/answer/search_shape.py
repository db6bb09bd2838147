"""A model's layers by kind, as the time and the memory of a plan are counted from them: matrices and widths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.dims import Dim, elements
from trainledger.lines.local import local_weight
from trainledger.lines.parts import Parts
from trainledger.model.program import Block, Model, Role, Weight
from trainledger.model.sizes import sizes_of

TABLES = (Role.EMBEDDING, Role.POSITION)


@dataclass(frozen=True, slots=True)
class Kind:
    """Layers that are alike: their numbers, weights, and how many of its experts a token takes."""

    layers: tuple[int, ...]
    weights: tuple[Weight, ...]
    top_k: int
    further: bool = False

    @property
    def matrices(self) -> tuple[Weight, ...]:
        """What products read."""
        return tuple(one for one in self.weights if len(one.dims) > 1 and one.role not in TABLES)


@dataclass(frozen=True, slots=True)
class Shape:
    """Widths of a model (elements a token): hidden, of all queries, values and keys with values of a layer; vocabulary;
    layers by kind, those for further tokens last."""

    hidden: int
    queries: int
    values: int
    keys: int
    vocab: int
    tied: bool
    kinds: tuple[Kind, ...]
    outside_first: tuple[Weight, ...]
    outside_last: tuple[Weight, ...]

    @property
    def layers(self) -> int:
        """Layers, without those for further tokens."""
        return sum(len(one.layers) for one in self.kinds if not one.further)

    @property
    def further(self) -> int:
        """Layers for further tokens."""
        return sum(len(one.layers) for one in self.kinds if one.further)


def shape_of(model: Model, given: Mapping[str, Any]) -> Shape:
    """The shape of a model with these keys."""
    sizes, hidden = sizes_of(given), model.hidden.size
    heads = sizes.heads or 1
    width = int(given.get("head_dim") or hidden // heads)
    queries = values = heads * width
    keys = _both((sizes.kv_heads or heads) * width)
    if given.get("kv_lora_rank") is not None:
        straight, turned = int(given.get("qk_nope_head_dim") or 0), int(given.get("qk_rope_head_dim") or 0)
        queries, values = heads * (straight + turned), heads * int(given.get("v_head_dim") or width)
        keys = queries + values
    kinds = tuple(_kind(one, False) for one in model.blocks)
    more = tuple(_kind(one, True) for one in model.further if one.ops)
    head = tuple(one for one in model.head.weights if one.role is Role.HEAD)
    tied = not head or all(one.tied for one in head)
    first, last = (tuple(one for one in some if not one.tied) for some in (model.embeddings, model.head.weights))
    return Shape(hidden, queries, values, keys, model.vocab, tied, (*kinds, *more), first, last)


def _both(width: int) -> int:
    """Keys and values."""
    return width + width


def _kind(block: Block, further: bool) -> Kind:
    return Kind(block.layers, tuple(one for one in block.weights if not one.tied), block.top_k, further)


def stacked(weight: Weight) -> bool:
    """Whether a weight is that of routed experts, which ranks of their own hold."""
    return weight.role is Role.EXPERT


def held(weight: Weight, parts: Parts) -> int:
    """Elements of one rank's part of a weight."""
    return elements(local_weight(weight, parts).dims)


def sides_of(weight: Weight, hidden: int) -> int:
    """Elements that a product reads and writes for each row: the sides of the matrix (of one expert's)."""
    dims = weight.dims[1:] if stacked(weight) and weight.dims[0].dim is Dim.EXPERTS else weight.dims
    size = elements(dims)
    one = next((axis.size for axis in dims if axis.dim is Dim.HIDDEN), hidden)
    return one + size // max(one, 1)


def inner_of(kind: Kind, hidden: int) -> int:
    """The inner width of a layer's feed-forward that one token passes through, over its experts."""
    width = 0
    for one in kind.matrices:
        if one.dims[-1].dim is Dim.FFN:
            each = one.elements // one.dims[0].size if stacked(one) and one.dims[0].dim is Dim.EXPERTS else one.elements
            width += each // hidden * (kind.top_k if stacked(one) else 1)
    return width
