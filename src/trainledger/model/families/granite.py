"""Granite: Llama with a multiplier on the embeddings, on each branch and on the logits; also with a choice of experts
in every layer, and one beside them that every token takes.

Sources: transformers/models/granite/modeling_granite.py; models/granitemoe/modeling_granitemoe.py: GraniteMoeMoE,
GraniteMoeTopKRouter; models/granitemoeshared/modeling_granitemoeshared.py: GraniteMoeSharedMLP (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, feed_forward, pre_norm
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, linear
from trainledger.model.program import (
    Act,
    Add,
    BestRouter,
    Experts,
    Model,
    Multiply,
    Op,
    Rope,
    Rotary,
    Scale,
    Split,
    View,
)
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention

DENSE, SHARED = "granite", "granitemoeshared"
ROUTED = "block_sparse_moe"


def build(keys: Keys) -> Model:
    """The model of these keys. The multipliers run at any value, 1 included."""
    family = keys.text("model_type", default=DENSE)
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("attention_bias")
    attention = SelfAttention(heads, scores_of(keys, heads), Rope(heads.width, heads.width), bias, bias)
    if family == DENSE:
        mlp = feed_forward(keys, hidden, act_of(keys), keys.flag("mlp_bias"))
    else:
        mlp = _experts(keys, hidden, keys.integer("shared_intermediate_size", least=0) if family == SHARED else 0)
    ops = pre_norm(hidden, self_attention(hidden, attention), mlp, Scale())
    blocks = moe.blocks(keys, [0] * keys.integer("num_hidden_layers"), lambda _: ops)
    embedded = Op("embedding multiplier", Scale(), ("h",), ("h",), hidden)
    vocab = axis(Dim.VOCAB, keys.integer("vocab_size"))
    headed = Op("logits scaling", Scale(), ("logits",), ("logits",), vocab)
    return decoder(keys, family, blocks, Rotary(heads.width), Trunk(embedded=(embedded,), headed=(headed,)))


def _experts(keys: Keys, hidden: Dims, shared: int) -> tuple[Op, ...]:
    """Router and routed experts, with an expert of width `shared` beside them (0: without): reads `x`, leaves `x`."""
    _, top_k = moe.routed(keys)
    width = keys.integer("intermediate_size")
    gate_up, down = moe.expert_weights(keys, f"{ROUTED}.experts", hidden, width)
    router = BestRouter(moe.router_weight(keys, f"{ROUTED}.router", hidden), None, top_k, high=True)
    experts = Experts(top_k, gate_up, down, act_of(keys))
    made, rows, out = ("router_logits", "scores", "chosen"), "rows", "routed" if shared else "x"
    return (
        Op(ROUTED, View(rows=True), ("x",), (rows,), hidden),
        Op(f"{ROUTED}.router", router, (rows,), made, router.weight.dims[:1]),
        Op(f"{ROUTED}.experts", experts, (rows, *made[1:]), (out,), hidden, (*made, rows)),
        *(_shared(keys, hidden, shared) if shared else ()),
    )


def _shared(keys: Keys, hidden: Dims, width: int) -> tuple[Op, ...]:
    """Adds to `routed`, which the layer names to its end, what the shared expert makes of `x`. The halves of its one
    projection keep their names in it."""
    both, inner = axis(Dim.FFN, width + width), axis(Dim.FFN, width)
    up = linear("shared_mlp.input_linear", hidden, both)
    down = linear("shared_mlp.output_linear", inner, hidden)
    halves = ("gate", "up")
    return (
        Op("shared_mlp.input_linear", up, ("x",), ("shared",), both),
        Op("shared_mlp", Split((inner, inner), chunk=True), ("shared",), halves, inner),
        Op("shared_mlp.activation", Act(act_of(keys)), ("gate",), ("act",), inner),
        Op("shared_mlp", Multiply(), ("act", "up"), ("shared",), inner, ("act",)),
        Op("shared_mlp.output_linear", down, ("shared",), ("shared",), hidden, halves),
        Op("shared_mlp", Add(), ("routed", "shared"), ("x",), hidden, ("shared",)),
    )
