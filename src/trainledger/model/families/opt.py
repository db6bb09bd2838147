"""OPT: learned positions, separate projections with the queries scaled before attention, ReLU.

Source: transformers/models/opt/modeling_opt.py (5.24.0): OPTDecoder, OPTDecoderLayer, OPTAttention.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import OPT_OFFSET
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    dropped,
    equal_heads,
    language_head,
    layer_norm,
    looked_up,
    plain,
    seen_by_heads,
    summed,
    table,
)
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear, project
from trainledger.model.program import ActKind, Attention, Block, Embed, Handed, Head, Model, Op, Role, Scale, View

MLP = ("fc1", "activation_fn", "fc2")


def self_attention(keys: Keys, heads: Heads, hidden: Dims, source: str) -> tuple[Op, ...]:
    """Reads `source`, leaves its result in `y`."""
    bias, dims = keys.flag("enable_bias"), heads.dims()
    spec = Attention(heads.query, heads.kv, heads.width, dropout=keys.number("attention_dropout"))
    linears = {value: linear(f"self_attn.{value}_proj", hidden, dims, bias) for value in ("q", "k", "v")}
    out = linear("self_attn.out_proj", dims, hidden, bias)
    return (
        project("self_attn.q_proj", linears["q"], source, "q"),
        Op("self_attn.scaling", Scale(), ("q",), ("q",), dims),
        seen_by_heads("self_attn.q_proj", "q", dims, rotated=False),
        project("self_attn.k_proj", linears["k"], source, "k"),
        seen_by_heads("self_attn.k_proj", "k", dims, rotated=False),
        project("self_attn.v_proj", linears["v"], source, "v"),
        seen_by_heads("self_attn.v_proj", "v", dims, rotated=False),
        Op("self_attn.attention", spec, ("q", "k", "v"), ("y",), dims),
        Op("self_attn.out_proj", out, ("y",), ("y",), hidden, ("q", "k", "v", *_ended(source))),
    )


def _ended(source: str) -> tuple[str, ...]:
    """The branch's own input, if it has one, to be dropped."""
    return () if source in ("h", "r") else (source,)


def layer(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """One layer, normalising before its branches or after the residual connections (the 350M model)."""
    heads = equal_heads(keys, "num_attention_heads", "hidden_size", hidden[0].size)
    act = keys.choice("activation_function", ACTIVATIONS, ActKind.RELU)
    affine, chance = keys.flag("layer_norm_elementwise_affine"), keys.number("dropout")
    up, function, down = plain(MLP, hidden, keys.integer("ffn_dim"), act, keys.flag("enable_bias"))
    before = keys.flag("do_layer_norm_before")
    inner = "x" if before else "r"
    first = layer_norm("self_attn_layer_norm", hidden, "h", "x" if before else "h", affine)
    second = layer_norm("final_layer_norm", hidden, *(("r", "x") if before else ("h", "h")), affine)
    return (
        *((first,) if before else ()),
        *self_attention(keys, heads, hidden, "x" if before else "h"),
        dropped("attention dropout", chance, "y", hidden),
        summed("attention residual", ("h", "y"), "h", hidden, ("y",)),
        *(() if before else (first,)),
        Op("tokens as rows", View(rows=True), ("h",), ("r",), hidden),
        *((second,) if before else ()),
        Op(up.name, up.spec, (inner,), ("y",), up.dims, _ended(inner)),
        function,
        down,
        dropped("feed-forward dropout", chance, "y", hidden),
        summed("feed-forward residual", ("r", "y"), "h", hidden, ("y",)),
        Op("tokens by sequence", View(rows=True), ("h",), ("h",), hidden),
        *(() if before else (second,)),
    )


def _head(keys: Keys, hidden: Dims, words: Dims) -> Head:
    prefix = "model.decoder"
    final: list[Op] = []
    if keys.flag("do_layer_norm_before") and not keys.flag("_remove_final_layer_norm"):
        affine = keys.flag("layer_norm_elementwise_affine")
        final.append(layer_norm(f"{prefix}.final_layer_norm", hidden, "h", "h", affine))
    if words[1:] != hidden:
        final.append(project(f"{prefix}.project_out", linear(f"{prefix}.project_out", hidden, words[1:]), "h", "h"))
    embedding = table(f"{prefix}.embed_tokens", words[0], words[1:])
    return language_head(tuple(final), embedding, "lm_head", keys.flag("tie_word_embeddings"))


def build(keys: Keys) -> Model:
    """The model of these keys."""
    prefix = "model.decoder"
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    narrow = axis(Dim.HIDDEN, keys.integer("word_embed_proj_dim", default=hidden[0].size))
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table(f"{prefix}.embed_tokens", vocab, narrow)
    rows = Axis(Dim.POSITIONS, keys.integer("max_position_embeddings") + OPT_OFFSET.count)
    positions = table(f"{prefix}.embed_positions", rows, hidden, Role.POSITION)
    if keys.number("layerdrop"):
        keys.refuse("layerdrop", keys.raw("layerdrop"), "0 is needed: a layer left out at random has no ledger")
    into = linear(f"{prefix}.project_in", narrow, hidden)
    wider = () if narrow == hidden else (project(f"{prefix}.project_in", into, "inputs_embeds", "inputs_embeds"),)
    ops = layer(keys, hidden)
    return Model(
        family="opt",
        prologue=(
            looked_up(f"{prefix}.embed_tokens", words, "inputs_embeds"),
            Op(
                f"{prefix}.embed_positions",
                Embed(positions, ids="position_ids", offset=True),
                ("position_ids",),
                ("pos_embeds",),
                hidden,
            ),
            *wider,
            summed(f"{prefix}.embeddings", ("inputs_embeds", "pos_embeds"), "h", hidden),
        ),
        embeddings=(words, positions, *(() if narrow == hidden else (into.weight,))),
        blocks=(Block(f"{prefix}.layers", ops, weights_of(ops), tuple(range(keys.integer("num_hidden_layers")))),),
        head=_head(keys, hidden, words.dims),
        handed=Handed(rebound=True),
        hidden=hidden[0],
        vocab=vocab.size,
    )
