"""What a layer is made of: weights, buffers, and what an adapter adds to a layer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.quantization import QuantKind


class Role(StrEnum):
    """What a weight is for; placement, casts and sharding are looked up from it."""

    MATRIX = "matrix"
    BIAS = "bias"
    NORM = "norm"
    EMBEDDING = "embedding"
    POSITION = "position"
    HEAD = "head"
    ROUTER = "router"
    EXPERT = "expert"
    MIXER = "mixer"  # of linear attention: its convolution's taps and its heads' decays


# kept in the dtype of norms, where a plan gives these one: preparing a quantised model casts all that is not packed
WITH_NORMS = frozenset({Role.NORM, Role.MIXER})
WITHIN_HEADS = frozenset({Dim.HEADS, Dim.KV_HEADS, Dim.SLOTS, Dim.HEAD_DIM})


@dataclass(frozen=True, slots=True)
class Packing:
    """How a quantised weight is stored and read: its kind, whether scales are quantised too, inputs per group (0: one
    group), the release of the package, the dtype that products are made in, and that which was quantised. `biases`:
    what the layers cast their biases to for good as they first run; None: they leave them."""

    kind: QuantKind
    double: bool
    group: int
    release: str
    compute: DType
    loaded: DType
    biases: DType | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """One parameter tensor. `name` is the framework's own; `dims` in storage order; `tied` shares another's storage.

    `dtype`: its own, where it has not that of the model's weights. `tuned`: an adapter's run trains it. `packed`: how
    it is quantised. `gathered`: in what sharded parts of it are gathered, where that is not what products read.
    `frozen`: a plan that trains some modules by name leaves it as it is. `rows`: entries of the first dim that its
    gradient comes with, where it is part of a table whose gradient every rank makes in whole (0: its own).
    """

    name: str
    dims: Dims
    role: Role = Role.MATRIX
    tied: bool = False
    dtype: DType | None = None
    tuned: bool = False
    packed: Packing | None = None
    gathered: DType | None = None
    frozen: bool = False
    rows: int = 0

    def __hash__(self) -> int:
        """By name, which tells apart nearly all weights of a model: weights are keys of most look-ups of a walk."""
        return hash(self.name)

    @property
    def elements(self) -> int:
        """Number of elements (shared storage included)."""
        return elements(self.dims)

    @property
    def slope(self) -> Dims:
        """The dims of its gradient as backward makes it."""
        return (Axis(self.dims[0].dim, self.rows), *self.dims[1:]) if self.rows else self.dims

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the framework's own tensor: heads, their slots and their width are one dimension of it."""
        return tuple(axis.size for axis in self.flat)

    @property
    def flat(self) -> Dims:
        """The dims of the framework's own tensor; what it has as one dimension is rows (the first) or columns."""
        found: list[Axis] = []
        inside = False
        for axis in self.dims:
            if inside and axis.dim in WITHIN_HEADS:
                name = Dim.COLUMNS if found[:-1] else Dim.ROWS
                found[-1] = Axis(name, found[-1].size * axis.size)
            else:
                found.append(axis)
            inside = axis.dim in WITHIN_HEADS
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor of the model on the device that is no parameter; its dtype is its own, not that of the weights."""

    name: str
    dims: Dims
    dtype: DType = FP32

    @property
    def elements(self) -> int:
        """Number of elements."""
        return elements(self.dims)


@dataclass(frozen=True, slots=True)
class Delta:
    """What another of PEFT's methods adds to a linear layer: its kind and parameters. `inside`: it scales the input
    (IA3). `parts`: how many parameters make each of its factors, where some are products of two. `dropout`: the
    chance with which it drops its input."""

    kind: str
    weights: tuple[Weight, ...]
    inside: bool = False
    parts: tuple[int, ...] = ()
    dropout: float = 0.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """Rows of an embedding that are trained: copied into the whole table for every forward."""

    weight: Weight


@dataclass(frozen=True, slots=True)
class FusedLowRank:
    """What LoRA adds to a fused layer of queries, keys and values: one `down` for all that are adapted, an own part of
    `up` for each, of these widths. `padded`: not all three are adapted, and zeros stand for the rest. `dropout`: of the
    layer's input."""

    down: Weight
    up: Weight
    widths: tuple[int, ...]
    padded: bool
    dropout: float = 0.0

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Its parameters in order."""
        return (self.down, self.up)


@dataclass(frozen=True, slots=True)
class LowRank:
    """What LoRA adds to a layer: up(down(dropout(x))), scaled. `magnitude`: DoRA's trained norm of every output;
    `idle`: the layer has a dropout, which a trainer turned off."""

    down: Weight
    up: Weight
    bias: Weight | None = None
    dropout: float = 0.0
    magnitude: Weight | None = None
    idle: bool = False

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Its parameters in order."""
        return tuple(one for one in (self.down, self.up, self.bias, self.magnitude) if one is not None)


@dataclass(frozen=True, slots=True)
class Fold:
    """What LoRA adds to a parameter itself, before its module reads it: `up` times `down`, for each expert of a stacked
    one. `down` is [rank x experts, in], `up` [out, rank x experts]. `turned`: the parameter's last dim is what comes
    out. `plain`: the product is not scaled."""

    weight: Weight
    down: Weight
    up: Weight
    turned: bool = False
    plain: bool = False

    @property
    def weights(self) -> tuple[Weight, Weight]:
        """Its own parameters in order."""
        return (self.down, self.up)
