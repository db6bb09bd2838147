"""Attention through latents (MLA): queries, keys and values out of narrow projections, one turning part for all heads.

Source: transformers (5.24.0) models/deepseek_v2/modeling_deepseek_v2.py, models/deepseek_v3/modeling_deepseek_v3.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, linear, norm
from trainledger.model.program import (
    Attention,
    Concat,
    FilledKeys,
    NormKind,
    Op,
    Pairs,
    Rope,
    Split,
    View,
)

NAME = "self_attn"


@dataclass(frozen=True, slots=True)
class Widths:
    """Heads; elements of a head's queries and keys that turn, that do not, and of its values; ranks of the latents
    (queries: None where they are projected straight)."""

    heads: int
    turned: int
    own: int
    value: int
    rank: int
    query_rank: int | None

    @property
    def head(self) -> int:
        """Elements of a head's queries and keys."""
        return self.own + self.turned

    def by_head(self, width: int) -> Dims:
        """Every head's elements."""
        return (Axis(Dim.HEADS, self.heads), Axis(Dim.HEAD_DIM, width))

    def shared(self, dim: Dim, width: int) -> Dims:
        """Elements that all heads share."""
        return (Axis(Dim.KV_HEADS, 1), Axis(dim, width))


def widths_of(keys: Keys) -> Widths:
    """The widths in a family's keys."""
    return Widths(
        keys.integer("num_attention_heads"),
        keys.integer("qk_rope_head_dim"),
        keys.integer("qk_nope_head_dim"),
        keys.integer("v_head_dim"),
        keys.integer("kv_lora_rank"),
        None if keys.nullable("q_lora_rank") is None else keys.integer("q_lora_rank"),
    )


def latent_attention(hidden: Dims, w: Widths, turn: Pairs | Rope, how: tuple[bool, float]) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `x`. `how`: whether the projections of the hidden state have biases, and the
    attention's dropout."""
    bias, dropout = how
    both, heads = w.by_head(w.own + w.value), w.by_head(w.head)
    split = (axis(Dim.RANK, w.rank), axis(Dim.ROPE_DIM, w.turned))
    compressed, down, up = (f"{NAME}.{name}" for name in ("kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj"))
    wide = axis(Dim.RANK, w.rank + w.turned)
    scores = Attention(w.heads, w.heads, w.head, dropout=dropout, head_first=True, value=w.value)
    return (
        *_queries(hidden, w, bias),
        Op(NAME, Split((w.by_head(w.own), w.by_head(w.turned)), chunk=True), ("q",), ("q_own", "q_turned"), heads),
        Op(compressed, linear(compressed, hidden, wide, bias), ("x",), ("latents",), wide),
        Op(NAME, Split(split, chunk=True), ("latents",), ("kv", "k_turned"), wide),
        Op(down, norm(down, split[0], NormKind.RMS), ("kv",), ("kv",), split[0]),
        Op(NAME, View(), ("kv",), ("kv",), w.shared(Dim.RANK, w.rank)),
        Op(NAME, View(), ("k_turned",), ("k_turned",), w.shared(Dim.ROPE_DIM, w.turned)),
        Op(f"{NAME}.rotary", turn, ("q_turned", "k_turned"), ("q_turned", "k_turned"), w.by_head(w.turned)),
        Op(NAME, Concat(), ("q_own", "q_turned"), ("q whole",), heads),
        Op(up, linear(up, split[0], both), ("kv",), ("kv whole",), both),
        Op(up, View(rotated=True), ("kv whole",), ("kv whole",), both),
        Op(NAME, Split((w.by_head(w.own), w.by_head(w.value)), chunk=True), ("kv whole",), ("k_own", "v"), both),
        Op(NAME, FilledKeys(), ("k_own", "k_turned"), ("k",), heads, ("kv whole", "k_own")),
        Op(f"{NAME}.attention", scores, ("q whole", "k", "v"), ("o",), w.by_head(w.value)),
        Op(
            f"{NAME}.o_proj", linear(f"{NAME}.o_proj", w.by_head(w.value), hidden, bias), ("o",), ("x",), hidden,
            ("q", "q_own", "q_turned", "q whole", "latents", "kv", "k_turned", "k", "v", "o"),
        ),
    )  # fmt: skip


def _queries(hidden: Dims, w: Widths, bias: bool) -> tuple[Op, ...]:
    """Queries of every head, straight or through a latent with a norm."""
    heads = w.by_head(w.head)
    if w.query_rank is None:
        name = f"{NAME}.q_proj"
        made: tuple[Op, ...] = (Op(name, linear(name, hidden, heads), ("x",), ("q",), heads),)
    else:
        narrow = axis(Dim.RANK, w.query_rank)
        first, middle, name = (f"{NAME}.{part}" for part in ("q_a_proj", "q_a_layernorm", "q_b_proj"))
        made = (
            Op(first, linear(first, hidden, narrow, bias), ("x",), ("q",), narrow),
            Op(middle, norm(middle, narrow, NormKind.RMS), ("q",), ("q",), narrow),
            Op(name, linear(name, narrow, heads), ("q",), ("q",), heads),
        )
    return (*made, Op(name, View(rotated=True), ("q",), ("q",), heads))
