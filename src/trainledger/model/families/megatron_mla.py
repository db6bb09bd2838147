"""Megatron-Core's multi-latent attention: queries, keys and values through latents of low rank.

Names are Megatron's own. Source: megatron/core/transformer/multi_latent_attention.py; models/gpt/gpt_layer_specs.py
(0.14 to 0.19).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.keys import Keys
from trainledger.model.operations_megatron import Along, Core, Latents, Parallel, Unfolded
from trainledger.model.parts import axis
from trainledger.model.program import Op

if TYPE_CHECKING:
    from trainledger.model.families.megatron_gpt import Shape

NAME = "self_attention"


def latent(keys: Keys) -> bool:
    """Whether attention goes through latents."""
    return keys.raw("kv_lora_rank") is not None


def attention(shape: Shape, keys: Keys) -> tuple[Op, ...]:
    """Self-attention: reads `h`, adds to it."""
    heads = shape.heads.query
    straight, turned = keys.integer("qk_nope_head_dim"), keys.integer("qk_rope_head_dim")
    value, rank = keys.integer("v_head_dim"), keys.integer("kv_lora_rank")
    low, both = axis(Dim.RANK, rank), axis(Dim.RANK, rank + turned)
    query, inner = axis(Dim.HEADS, heads * (straight + turned)), axis(Dim.HEADS, heads * value)
    wide = axis(Dim.HEADS, heads * (straight + value))
    proj = shape.linear(f"{NAME}.linear_proj", Along.ROW, inner, shape.hidden)
    down = _linear(shape, "linear_kv_down_proj", Along.WHOLE, shape.hidden, both)
    dims = (Axis(Dim.HEADS, heads), Axis(Dim.HEAD_DIM, straight + turned), Axis(Dim.SLOTS, value))
    first, second = _queries(shape, keys, query)
    return (
        shape.norm("input_layernorm", "h", "n"),
        *first,
        Op(f"{NAME}.linear_kv_down_proj", down, ("n",), ("kv",), both),
        Op(f"{NAME}.latents", Latents(), ("kv",), ("l", "p"), (*low, Axis(Dim.ROPE_DIM, turned))),
        *second,
        *_up(shape, "kv", ("l", low), wide),
        Op(f"{NAME}.rotary", Unfolded(straight), ("q", "u", "p"), ("q", "k", "v"), dims, ("u", "p", "kv", "l")),
        Op(f"{NAME}.core_attention", Core(shape.attention_dropout), ("q", "k", "v"), ("o",), inner),
        Op(f"{NAME}.linear_proj", proj, ("o",), ("x",), shape.hidden, ("q", "k", "v", "o")),
        shape.joined("self_attn_bda", proj),
    )


def _queries(shape: Shape, keys: Keys, query: Dims) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """Queries through a latent of their own, or straight from the hidden states: what makes the latent, and what is
    projected up with the keys."""
    if keys.nullable("q_lora_rank") is None:
        straight = _linear(shape, "linear_q_proj", Along.COLUMN, shape.hidden, query)
        return (), (Op(f"{NAME}.linear_q_proj", straight, ("n",), ("q",), query),)
    low = axis(Dim.RANK, keys.integer("q_lora_rank"))
    down = _linear(shape, "linear_q_down_proj", Along.WHOLE, shape.hidden, low)
    first = Op(f"{NAME}.linear_q_down_proj", down, ("n",), ("c",), low)
    return (first,), _up(shape, "q", ("c", low), query)


def _up(shape: Shape, kind: str, source: tuple[str, Dims], wide: Dims) -> tuple[Op, ...]:
    """The projection of a latent up to heads, after a norm where queries and keys have one."""
    name, low = source
    target = "q" if kind == "q" else "u"
    up = _linear(shape, f"linear_{kind}_up_proj", Along.COLUMN, low, wide)
    if not shape.qk_norm:
        return (Op(f"{NAME}.linear_{kind}_up_proj", up, (name,), (target,), wide),)
    normed = f"{name}n"
    return (
        shape.norm(f"{NAME}.{kind}_layernorm", name, normed, low),
        Op(f"{NAME}.linear_{kind}_up_proj", up, (normed,), (target,), wide),
    )


def _linear(shape: Shape, name: str, along: Along, source: Dims, target: Dims) -> Parallel:
    return replace(shape.linear(f"{NAME}.{name}", along, source, target), later=False)
