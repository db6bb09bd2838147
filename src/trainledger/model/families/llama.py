"""Llama: pre-norm, rotary attention with grouped keys, gated feed-forward. InternLM 3 and EXAONE are the same
class; Arcee has a feed-forward without a gate.

Sources: transformers/models/llama/modeling_llama.py (5.24.0): LlamaDecoderLayer, LlamaAttention, LlamaMLP;
models/{internlm3,exaone}/configuration_*.py; models/arcee/modeling_arcee.py: ArceeMLP.
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model import decoder as shared
from trainledger.model.decoder import Trunk, act_of, feed_forward, grouped, plain_feed_forward, weights_of
from trainledger.model.keys import Keys
from trainledger.model.parts import ACTIVATIONS, Heads, axis
from trainledger.model.program import ActKind, Model, Op, Rope, Rotary
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of
from trainledger.model.self_attention import self_attention as attention

__all__ = ["build", "heads_of", "self_attention", "weights_of"]


INTERN, ARCEE, EXAONE = "internlm3", "arcee", "exaone"


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Llama's attention: reads `x`, leaves its result in `x`."""
    same = ("attention_bias", "qkv_bias") if keys.text("model_type") == INTERN else ("attention_bias",)
    bias, out_bias = keys.flag(*same), keys.flag("attention_out_bias", *same)
    rope = Rope(heads.width, heads.width)
    return attention(hidden, SelfAttention(heads, scores_of(keys, heads), rope, bias, out_bias))


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    family = keys.text("model_type")
    bias = keys.flag("mlp_bias", "bias") if family == INTERN else keys.flag("mlp_bias")
    made = plain_feed_forward if family == ARCEE else feed_forward
    mlp = made(keys, hidden, _act(keys, family), bias)
    ops = shared.pre_norm(hidden, self_attention(keys, heads, hidden), mlp)
    blocks = grouped([0] * keys.integer("num_hidden_layers", "num_layers"), lambda _: ops)
    return shared.decoder(keys, family, blocks, Rotary(heads.width), Trunk())


def _act(keys: Keys, family: str) -> ActKind:
    """The activation function, under either of its names."""
    if family == EXAONE and "activation_function" in keys.given:
        return keys.choice("activation_function", ACTIVATIONS, ActKind.SILU)
    return act_of(keys)
