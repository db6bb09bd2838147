"""Self-attention of decoders near Llama, and its variants: biases, norms of queries and keys, windows, no positions.

Sources: transformers/models/{llama,qwen3,gemma3,olmo2,cohere}/modeling_*.py (5.24.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.dims import Dim, Dims
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, attend, axis, linear, norm
from trainledger.model.program import Attention, NormKind, Op, Pairs, Rope, Tempered, Turn, View

WHOLE = Pairs(Turn.WHOLE)  # through which gradients come in token order
NUMBERS = ("positions", "numbers")  # what code that tempers queries late names


class Place(StrEnum):
    """Where queries and keys are normalised."""

    EACH = "each"  # by head, each right after its projection (Qwen 3)
    WIDE = "wide"  # over all heads at once, before they are told apart (OLMo 2)
    LATE = "late"  # by head, after all three projections (Gemma 3)
    FULL = "full"  # as LATE, with a weight for every head (Cohere)
    AFTER = "after"  # by head, after they have turned (Hunyuan)


@dataclass(frozen=True, slots=True)
class HeadNorm:
    """The norm of queries and keys; `names`: of its modules."""

    kind: NormKind
    place: Place
    names: tuple[str, str] = ("q_norm", "k_norm")


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """An attention module: its heads, scores, rotary embedding (None: no positions), biases, query and key norm,
    numbers by position that queries are multiplied by; `together`: all three are projected before any is seen by heads;
    `last`: the output projection's name.

    It reads `x` and leaves its result in `out`.
    """

    heads: Heads
    scores: Attention
    rope: Rope | Pairs | None
    bias: bool = False
    out_bias: bool = False
    norm: HeadNorm | None = None
    out: str = "x"
    name: str = "self_attn"
    tempered: Tempered | None = None
    together: bool = False
    last: str = "o_proj"


def heads_of(keys: Keys, hidden: int) -> Heads:
    """Heads, key and value heads and head dim, with what does not divide noted."""
    query = keys.integer("num_attention_heads")
    kv = query if keys.nullable("num_key_value_heads") is None else keys.integer("num_key_value_heads")
    if keys.nullable("head_dim") is None:
        width = keys.divides("num_attention_heads", query, "hidden_size", hidden)
    else:
        width = keys.integer("head_dim")
    keys.divides("num_key_value_heads", kv, "num_attention_heads", query)
    return Heads(query, kv, width)


def scores_of(keys: Keys, heads: Heads, window: int = 0, softcap: bool = False) -> Attention:
    """Scores and values over these heads, with the attention's dropout."""
    dropout = keys.number("attention_dropout")
    return Attention(heads.query, heads.kv, heads.width, dropout=dropout, window=window, softcap=softcap)


def window_of(keys: Keys) -> int:
    """The sliding window's length in tokens; 0 for none."""
    return 0 if keys.nullable("sliding_window") is None else keys.integer("sliding_window", least=0)


def rotary_width(keys: Keys, width: int) -> int:
    """How many of a head's elements turn: `partial_rotary_factor`, in the rotary parameters or beside them."""
    factor = keys.raw("partial_rotary_factor", default=1.0)
    for name in ("rope_parameters", "rope_scaling"):
        stated = keys.raw(name)
        if isinstance(stated, dict):
            factor = stated.get("partial_rotary_factor", factor)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
        keys.refuse("partial_rotary_factor", factor, "a share above 0 and at most 1 is needed")
        return width
    return int(width * factor)


def self_attention(hidden: Dims, s: SelfAttention) -> tuple[Op, ...]:
    """q, k and v, their norm, rotary embedding, attention, output projection."""
    place = s.norm.place if s.norm else None
    projected: list[Op] = []
    views: list[Op] = []
    late: list[Op] = []
    for value in ("q", "k", "v"):
        dims = s.heads.dims(kv=value != "q")
        name = f"{s.name}.{value}_proj"
        flat = axis(Dim.HEADS, dims[0].size * dims[1].size) if place is Place.WIDE else dims
        projected.append(Op(name, linear(name, hidden, dims, s.bias), ("x",), (value,), flat))
        view = Op(name, _view(s, value), (value,), (value,), dims)
        normal = _head_norm(s, value, flat) if value != "v" else ()
        if place is Place.WIDE or s.together:
            projected += normal
            views.append(view)
            continue
        projected.append(view)
        if place is Place.EACH:
            projected += normal
        else:
            late += normal
    turned = [Op(f"{s.name}.rotary", s.rope, ("q", "k"), ("q", "k"), s.heads.dims())] if s.rope else []
    if place is Place.AFTER:
        late, turned = [], turned + late
    named = () if s.tempered is None or s.tempered.early else NUMBERS
    if s.tempered:
        turned.append(Op(s.name, s.tempered, ("q",), ("q", *named), s.heads.dims()))
    last = f"{s.name}.{s.last}"
    out = linear(last, s.heads.dims(), hidden, s.out_bias)
    return (
        *projected,
        *views,
        *late,
        *turned,
        attend(s.name, s.heads, s.scores),
        Op(last, out, ("o",), (s.out,), hidden, ("q", "k", "v", *named, "o")),
    )


def _view(s: SelfAttention, value: str) -> View:
    """A projection seen by heads; the gradient of keys that neither turn nor are repeated has another layout."""
    turned = s.rope is not None and value != "v"
    if turned and s.rope == WHOLE:
        return View(straight=True)
    return View(turned, keys=value == "k" and not turned and s.heads.query == s.heads.kv)


def _head_norm(s: SelfAttention, value: str, dims: Dims) -> tuple[Op, ...]:
    if s.norm is None:
        return ()
    weight = dims if s.norm.place in (Place.WIDE, Place.FULL) else dims[-1:]
    name = f"{s.name}.{s.norm.names[value == 'k']}"
    return (Op(name, norm(name, weight, s.norm.kind), (value,), (value,), dims),)
