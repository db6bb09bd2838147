"""Pieces of the families with LayerNorm: norms with a bias, dropouts, embeddings by position, plain feed-forwards."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, linear, project
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Dropout,
    Embed,
    Head,
    Join,
    Linear,
    Norm,
    NormKind,
    Op,
    Role,
    Rope,
    View,
    Weight,
)


def layer_norm(name: str, dims: Dims, ins: str, out: str, affine: bool = True) -> Op:
    """A torch.nn.LayerNorm; without weight and bias when not `affine`."""
    weight = Weight(f"{name}.weight", dims, Role.NORM) if affine else None
    bias = Weight(f"{name}.bias", dims, Role.NORM) if affine else None
    return Op(name, Norm(NormKind.LAYER, weight, bias), (ins,), (out,), dims)


def dropped(name: str, chance: float, value: str, dims: Dims, drop: tuple[str, ...] = ()) -> Op:
    """Dropout of a value, bound to its name again."""
    return Op(name, Dropout(chance), (value,), (value,), dims, drop)


def embedded(name: str, weight: Weight, dropout: str, chance: float) -> tuple[Op, ...]:
    """The words' rows and their dropout as `h`: with a dropout, the rows keep a name of their own."""
    if not chance:
        return (looked_up(name, weight, "h"),)
    row = looked_up(name, weight, "inputs_embeds")
    return (row, Op(dropout, Dropout(chance), ("inputs_embeds",), ("h",), row.dims))


def summed(name: str, ins: tuple[str, str], out: str, dims: Dims, drop: tuple[str, ...] = ()) -> Op:
    """A sum of two values."""
    return Op(name, Add(), ins, (out,), dims, drop)


def table(name: str, rows: Axis, width: Dims, role: Role = Role.EMBEDDING) -> Weight:
    """An embedding's weight: [rows, width]."""
    return Weight(f"{name}.weight", (rows, *width), role)


def looked_up(name: str, weight: Weight, out: str, ids: str = "input_ids", per_batch: bool = True) -> Op:
    """Rows of a table by ids."""
    return Op(name, Embed(weight, per_batch, ids), (ids,), (out,), weight.dims[1:])


def plain(names: tuple[str, str, str], hidden: Dims, width: int, act: ActKind, bias: bool = True) -> tuple[Op, ...]:
    """down(act(up(x))): reads `x`, leaves its result in `y`. `names`: of up, of the activation, of down."""
    inner = (Axis(Dim.FFN, width),)
    up, function, down = names
    return (
        Op(up, linear(up, hidden, inner, bias), ("x",), ("y",), inner),
        Op(function, Act(act), ("y",), ("y",), inner),
        Op(down, linear(down, inner, hidden, bias), ("y",), ("y",), hidden),
    )


def equal_heads(keys: Keys, heads: str, hidden: str, size: int) -> Heads:
    """As many key and value heads as query heads; `heads` and `hidden` are the keys' names."""
    count = keys.integer(heads)
    return Heads(count, count, keys.divides(heads, count, hidden, size))


def language_head(final: tuple[Op, ...], embedding: Weight, name: str, tied: bool, bias: bool = False) -> Head:
    """Operations on the last hidden state, then a linear layer to the vocabulary (tied to the embedding or its own)."""
    vocab = embedding.dims[:1]
    own = Weight(f"{name}.weight", embedding.dims, Role.HEAD)
    shift = Weight(f"{name}.bias", vocab, Role.BIAS) if bias else None
    logits = Op(name, Linear(embedding if tied else own, shift), ("h",), ("logits",), vocab)
    weights = [weight for op in final for weight in weights_read(op)]
    weights += [] if tied else [own]
    return Head((*final, logits), tuple(weights) + (() if shift is None else (shift,)))


def weights_read(op: Op) -> tuple[Weight, ...]:
    """The weight and bias an operation reads."""
    found = (getattr(op.spec, field, None) for field in ("weight", "bias"))
    return tuple(weight for weight in found if weight is not None)


@dataclass(frozen=True, slots=True)
class Projections:
    """Three linear layers that make queries, keys and values by heads of one value, in this order.

    `names`: their modules; `rotated`: a rotary embedding follows.
    """

    names: tuple[str, str, str]
    hidden: Dims
    heads: Heads
    bias: bool = True
    rotated: bool = True
    source: str = "x"

    def ops(self) -> tuple[Op, ...]:
        """Binds `q`, `k` and `v`."""
        found: list[Op] = []
        for name, value in zip(self.names, ("q", "k", "v"), strict=True):
            dims = self.heads.dims(kv=value != "q")
            found.append(project(name, linear(name, self.hidden, dims, self.bias), self.source, value))
            found.append(seen_by_heads(name, value, dims, self.rotated))
        return tuple(found)


def seen_by_heads(name: str, value: str, dims: Dims, rotated: bool) -> Op:
    """A projection seen by heads; values never turn, keys and queries may."""
    turned = rotated and value != "v"
    return Op(name, View(turned, keys=value == "k" and not turned), (value,), (value,), dims)


APART = ("q_turned", "k_turned", "q_rest", "k_rest")


def turned(name: str, width: int, heads: Heads, join: Join) -> Op:
    """The rotary embedding of `width` elements of each head of `q` and `k`; binds APART too where `join` says so."""
    outs = ("q", "k", *(APART if join is Join.APART else ()))
    return Op(name, Rope(width, heads.width, join=join), ("q", "k"), outs, heads.dims())
