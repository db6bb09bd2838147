"""Qwen 2 and 3 with mixtures of experts: experts in some layers or all, a shared one beside them in Qwen 2.

Source: transformers (5.24.0) models/qwen2_moe/modeling_qwen2_moe.py, models/qwen3_moe/modeling_qwen3_moe.py.
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import SLIDING, Trunk, act_of, decoder, feed_forward, layer_kinds, pre_norm
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, NormKind, Op, Rope, Rotary
from trainledger.model.self_attention import (
    HeadNorm,
    Place,
    SelfAttention,
    heads_of,
    scores_of,
    self_attention,
    window_of,
)


def build(keys: Keys) -> Model:
    """The model of these keys: `qwen2_moe` (biases on q, k and v), or `qwen3_moe` (queries and keys normed by head),
    also as the language model of Qwen 3 VL (`qwen3_vl_moe_text`)."""
    seeing = keys.text("model_type") == "qwen3_vl_moe_text"  # whose router always normalises
    family = "qwen3_moe" if seeing else keys.text("model_type")
    second = family == "qwen2_moe"
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    bias = keys.flag("qkv_bias") if second else keys.flag("attention_bias")
    norm = None if second else HeadNorm(NormKind.RMS, Place.EACH)
    routed = moe.sparse(keys, hidden, keys.integer(*moe.EXPERT_WIDTH), seeing or keys.flag("norm_topk_prob"))
    experts = moe.with_shared(keys, hidden, routed) if second else routed
    dense = feed_forward(keys, hidden, act_of(keys))

    def layer(kind: tuple[bool, int]) -> tuple[Op, ...]:
        scores, rope = scores_of(keys, heads, kind[1]), Rope(heads.width, heads.width)
        attention = SelfAttention(heads, scores, rope, bias, bias and not second, norm)
        return pre_norm(hidden, self_attention(hidden, attention), dense if kind[0] else experts)

    layers = keys.integer("num_hidden_layers")
    without = _dense(keys, layers)
    kinds = [(at in without, window) for at, window in enumerate(_windows(keys, layers, second))]
    return decoder(keys, family, moe.blocks(keys, kinds, layer), Rotary(heads.width), Trunk())


def _dense(keys: Keys, layers: int) -> frozenset[int]:
    """Layers without experts: by Qwen's keys (`decoder_sparse_step`, `mlp_only_layers`), or by those of others."""
    step = keys.integer("decoder_sparse_step")
    only = frozenset(keys.indices("mlp_only_layers"))
    return only | frozenset(at for at in range(layers) if (at + 1) % step) | moe.dense_first(keys, layers)


def _windows(keys: Keys, layers: int, second: bool) -> list[int]:
    """Each layer's window (0: none): with `use_sliding_window` every layer's in Qwen 3, in Qwen 2 by default every
    other one's among the first `max_window_layers`."""
    window = window_of(keys) if keys.flag("use_sliding_window") else 0
    if not second:
        return [window] * layers
    last = keys.integer("max_window_layers", least=0)
    kinds = layer_kinds(keys, layers, lambda at: window > 0 and at < last and bool((at + 1) & 1))
    return [window if kind == SLIDING else 0 for kind in kinds]
