"""Keys and values that a rollout engine caches for each token of a model, layer by layer.

A layer of grouped heads caches keys and values of its key-value heads; one with latents (MLA) the latent and the turned
part that all heads share; a layer with a window only its last tokens; linear attention a state of each sequence,
however long: what its convolution reads of past tokens, and a matrix for each head.

Source: the rows in facts/phases.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import DType
from trainledger.facts.phases import PAGES
from trainledger.model.operations_linear import CausalConv, DeltaRule
from trainledger.model.operations_megatron import Latents, Queries
from trainledger.model.program import Attention, Block, Linear, Model, WrittenAttention

LATENT = "kv_a_proj_with_mqa"  # the projection whose result a layer with latents caches
BOTH = len(("keys", "values"))
Key = tuple[int, int, int, int, int]  # heads, width, window, heads of queries, state: as in `Cached`


@dataclass(frozen=True, slots=True)
class Cached:
    """Equal layers: how many, key-value heads (0: a latent that all heads share), elements of a token's keys and values
    in one head (or in the latent), tokens that a window keeps (0: all), heads of queries; elements of a sequence's
    state, which its length does not change."""

    layers: int
    heads: int
    width: int
    window: int
    queries: int = 1
    state: int = 0

    def elements(self, tp: int = 1) -> int:
        """Elements that one layer caches of one token on each of `tp` ranks; what cannot be split lies on all."""
        return self.width * (-(-self.heads // tp) if self.heads else 1)

    def kept(self, tp: int = 1) -> int:
        """Elements of one layer's state of one sequence on each of `tp` ranks."""
        return -(-self.state // tp)

    def copies(self, tp: int = 1) -> int:
        """How many of `tp` ranks cache the same head: one while there are heads for all, of a latent every rank."""
        return max(1, tp // max(1, self.heads))

    def tokens(self, length: int, page: int) -> int:
        """Tokens in the pages of one sequence of this length (tokens)."""
        if 0 < self.window < length:
            return (-(-self.window // page) + PAGES.beyond) * page
        return -(-length // page) * page


@dataclass(frozen=True, slots=True)
class Cache:
    """A model's cache: its layers by kind, its element type, tokens of a page, ranks that share the heads."""

    layers: tuple[Cached, ...]
    dtype: DType
    page: int = PAGES.tokens
    tp: int = 1

    @property
    def per_token(self) -> int:
        """Bytes of one token in all layers on one rank, windows left aside."""
        return self.dtype.bytes_of(sum(one.layers * one.elements(self.tp) for one in self.layers))

    def sequence(self, length: int) -> int:
        """Bytes of one sequence of this length (tokens) on one rank: whole pages, of a window its own, and states."""
        pages = (one.layers * one.elements(self.tp) * one.tokens(length, self.page) for one in self.layers)
        return self.dtype.bytes_of(sum(pages) + sum(one.layers * one.kept(self.tp) for one in self.layers))


def cached(model: Model) -> tuple[Cached, ...]:
    """What every kind of layer caches. Raises InputError where a layer's attention is not known."""
    found: dict[Key, int] = {}
    for block in model.blocks:
        key = _of(model, block)
        found[key] = found.get(key, 0) + block.count
    return tuple(Cached(count, *key) for key, count in found.items())


def state_of(block: Block) -> tuple[int, int]:
    """Elements of one sequence's state in a layer with a convolution over time: of past tokens that it reads, and of
    the matrices of the heads of linear attention; none in other layers."""
    conv = next((op.spec for op in block.ops if isinstance(op.spec, CausalConv)), None)
    rule = next((op.spec for op in block.ops if isinstance(op.spec, DeltaRule)), None)
    if conv is None:
        return 0, 0
    channels, _, taps = conv.weight.dims
    past = channels.size * (taps.size - 1)
    if rule is None:
        return past, 0
    heads = rule.heads
    return past, heads.values * heads.key_width * heads.value_width


def _of(model: Model, block: Block) -> Key:
    if any(state := state_of(block)):
        rule = next((op.spec for op in block.ops if isinstance(op.spec, DeltaRule)), None)
        if rule is None:
            return 0, 0, 0, 1, sum(state)
        return rule.heads.keys, 0, 0, rule.heads.values, sum(state)
    return *_attention(model, block), 0


def _attention(model: Model, block: Block) -> tuple[int, int, int, int]:
    spec = next((op.spec for op in block.ops if isinstance(op.spec, Attention)), None)
    if (latents := next((op for op in block.ops if isinstance(op.spec, Latents)), None)) is not None:
        return 0, sum(axis.size for axis in latents.dims), 0, spec.heads if spec else 1
    if (heads := next((op for op in block.ops if isinstance(op.spec, Queries)), None)) is not None:
        groups, width = heads.dims
        return groups.size, BOTH * width.size, 0, spec.heads if spec else groups.size
    if spec is None or not model.causal:
        found = f"found {model.family!r}" + (f": {block.unknown}" if block.unknown else "")
        raise InputError([Problem("model.model_type", found, "a decoder whose attention is known is needed")])
    latent = next((op.spec for op in block.ops if op.name.endswith(LATENT) and isinstance(op.spec, Linear)), None)
    if latent is not None:
        return 0, latent.weight.dims[0].size, spec.window, spec.heads
    if isinstance(spec, WrittenAttention) and spec.groups:
        return spec.groups, BOTH * spec.head, spec.window, spec.heads
    return spec.kv_heads, spec.head + (spec.value or spec.head), spec.window, spec.heads
