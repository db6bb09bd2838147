"""Falcon before its third generation: fused query, key and value, one or grouped key and value heads, ALiBi or rotary.

Source: transformers/models/falcon/modeling_falcon.py (5.24.0): FalconDecoderLayer, FalconAttention, FalconMLP.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import FALCON_NORMS, WIDENING
from trainledger.model.keys import Keys
from trainledger.model.layered import language_head, layer_norm, looked_up, table, weights_read
from trainledger.model.parts import Heads, axis, linear
from trainledger.model.program import Block, Linear, Model, Rotary, Weight

UNKNOWN = (
    "Falcon's attention runs with a mask tensor, on keys and values that are gathered by index; no rule covers that yet"
)


def heads_of(keys: Keys, hidden: int) -> Heads:
    """Query heads, and how many key and value heads the fused projection makes."""
    count = keys.integer("num_attention_heads")
    width = keys.divides("num_attention_heads", count, "hidden_size", hidden)
    if keys.flag("new_decoder_architecture"):
        grouped = keys.integer("num_kv_heads", default=count)
        keys.divides("num_kv_heads", grouped, "num_attention_heads", count)
        return Heads(count, grouped, width)
    return Heads(count, 1 if keys.flag("multi_query") else count, width)


def norms(keys: Keys) -> tuple[str, ...]:
    """The layer's norms: two for sequential branches or for each parallel branch its own, else one."""
    if not keys.flag("parallel_attn"):
        return ("post_attention_layernorm", "input_layernorm")
    default = FALCON_NORMS.count if keys.flag("new_decoder_architecture") else 1
    if keys.integer("num_ln_in_parallel_attn", default=default) == FALCON_NORMS.count:
        return ("ln_attn", "ln_mlp")
    return ("input_layernorm",)


def weights(keys: Keys, hidden: Dims) -> tuple[Weight, ...]:
    """One layer's weights, in the module's order."""
    heads, bias = heads_of(keys, hidden[0].size), keys.flag("bias")
    lines = (Axis(Dim.HEADS, heads.query + heads.kv + heads.kv), Axis(Dim.HEAD_DIM, heads.width))
    inner = axis(Dim.FFN, keys.integer("ffn_hidden_size", default=WIDENING.count * hidden[0].size))
    linears: tuple[Linear, ...] = (
        linear("self_attention.query_key_value", hidden, lines, bias),
        linear("self_attention.dense", heads.dims(), hidden, bias),
        linear("mlp.dense_h_to_4h", hidden, inner, bias),
        linear("mlp.dense_4h_to_h", inner, hidden, bias),
    )
    found = [weight for spec in linears for weight in (spec.weight, spec.bias)]
    found += [weight for name in norms(keys) for weight in weights_read(layer_norm(name, hidden, "h", "x"))]
    return tuple(weight for weight in found if weight is not None)


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("n_embed", "hidden_size"))
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.word_embeddings", vocab, hidden)
    layers = tuple(range(keys.integer("num_hidden_layers")))
    final = layer_norm("transformer.ln_f", hidden, "h", "h")
    rotary = None if keys.flag("alibi") else Rotary(heads_of(keys, hidden[0].size).width)
    return Model(
        family="falcon",
        prologue=(looked_up("transformer.word_embeddings", words, "h"),),
        embeddings=(words,),
        blocks=(Block("transformer.h", (), weights(keys, hidden), layers, unknown=UNKNOWN),),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings")),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=rotary,
    )
