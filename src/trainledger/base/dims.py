"""Named dims: what each axis of a tensor counts. Sharding is looked up from these names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Dim(StrEnum):
    """The name of a tensor dimension."""

    __hash__ = str.__hash__  # Enum's own is written in Python, and names are part of the keys of most look-ups

    BATCH = "batch"
    SEQUENCE = "sequence"
    KEY_SEQUENCE = "key_sequence"
    TOKENS = "tokens"
    HIDDEN = "hidden"
    HIDDEN_PART = "hidden_part"  # hidden that a column-parallel layer makes, before it is gathered
    HEADS = "heads"
    KV_HEADS = "kv_heads"
    HEAD_DIM = "head_dim"
    QKV = "qkv"
    ROPE_DIM = "rope_dim"
    FFN = "ffn"
    VOCAB = "vocab"
    POSITIONS = "positions"
    TYPES = "types"
    EXPERTS = "experts"
    SLOTS = "slots"
    RANK = "rank"
    LAYERS = "layers"
    ROWS = "rows"
    COLUMNS = "columns"
    BLOCKS = "blocks"
    ELEMENTS = "elements"
    ONE = "one"


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of one tensor: its name and how many entries it has (elements)."""

    dim: Dim
    size: int


Dims = tuple[Axis, ...]


def elements(dims: Dims) -> int:
    """The number of elements of a tensor with these dims."""
    count = 1
    for axis in dims:  # called for every storage of every layer, where math.prod with a generator takes twice as long
        count *= axis.size
    return count


def shape_text(dims: Dims) -> str:
    """`batch 1 x sequence 4096 x hidden 4096`, for people."""
    return " x ".join(f"{axis.dim.value} {axis.size:,}" for axis in dims)


def stretched(dims: Dims, by: int) -> Dims:
    """The dims with a sequence `by` times as long."""
    return tuple(Axis(one.dim, one.size * by) if one.dim is Dim.SEQUENCE else one for one in dims)
