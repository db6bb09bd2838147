"""GPT-BigCode (StarCoder, SantaCoder, Granite Code): GPT-2's blocks with linear layers and one key and value head.

Source: transformers/models/gpt_bigcode/modeling_gpt_bigcode.py (5.24.0): GPTBigCodeBlock, GPTBigCodeAttention.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL
from trainledger.facts.model_types_layernorm import WIDENING
from trainledger.model.families.gpt2 import FUSED, layer, whole, width
from trainledger.model.keys import Keys
from trainledger.model.layered import dropped, plain
from trainledger.model.parts import ACTIVATIONS, Heads, by_heads, linear, project
from trainledger.model.program import ActKind, Attention, Buffer, Handed, Model, Op, Split, View

MLP = ("mlp.c_fc", "mlp.act", "mlp.c_proj")


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `o`."""
    grouped = heads.kv < heads.query
    each, shared = heads.dims(), heads.dims(kv=True)
    lines = heads.query + heads.kv + heads.kv
    wide = (Axis(Dim.HEADS, lines), each[1]) if grouped else (each[0], Axis(Dim.SLOTS, len(FUSED)), each[1])
    spec = Attention(heads.query, heads.kv, heads.width, dropout=keys.number("attn_pdrop"))
    name = "attn.c_attn"
    return (
        project(name, linear(name, hidden, wide, bias=True), "x", "qkv"),
        *(() if grouped else (Op(name, View(rotated=True), ("qkv",), ("qkv",), wide),)),
        Op("attn.split", Split((each, shared, shared), chunk=True), ("qkv",), FUSED, each, ("qkv",)),
        *((by_heads("attn.query", each, "q", rotated=False),) if grouped else ()),
        Op("attn.attention", spec, FUSED, ("o",), each),
        project("attn.c_proj", linear("attn.c_proj", each, hidden, bias=True), "o", "o"),
        dropped("attn.resid_dropout", keys.number("resid_pdrop"), "o", hidden, FUSED),
    )


def feed_forward(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `y`."""
    size = keys.integer("n_inner", default=WIDENING.count * hidden[0].size)
    act = keys.choice("activation_function", ACTIVATIONS, ActKind.GELU_TANH)
    return (
        *plain(MLP, hidden, size, act),
        dropped("mlp.dropout", keys.number("resid_pdrop"), "y", hidden),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden, equal = width(keys)
    heads = Heads(equal.query, 1 if keys.flag("multi_query") else equal.query, equal.width)
    ops = layer(self_attention(keys, heads, hidden), feed_forward(keys, hidden), hidden)
    model = whole(keys, "gpt_bigcode", ops, hidden)
    places = model.embeddings[1].dims[0]
    triangle = Buffer("transformer.bias", (places, Axis(Dim.KEY_SEQUENCE, places.size)), BOOL)
    return replace(model, buffers=(triangle,), handed=Handed(positions=False, rebound=True))
