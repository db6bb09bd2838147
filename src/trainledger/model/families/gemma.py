"""Gemma 1, 2 and 3 (text): scaled embeddings, norms with 1 + weight, from 2 on a norm on both sides of each branch.

Sources: transformers/models/gemma/modeling_gemma.py, gemma2/modeling_gemma2.py, gemma3/modeling_gemma3.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import SLIDING, Trunk, decoder, every_but, feed_forward, grouped, layer_kinds, normed
from trainledger.model.keys import Keys
from trainledger.model.parts import ACTIVATIONS, axis, residual
from trainledger.model.program import Act, ActKind, Buffer, Model, NormKind, Op, Rope, Rotary, Scale
from trainledger.model.self_attention import (
    HeadNorm,
    Place,
    SelfAttention,
    heads_of,
    scores_of,
    self_attention,
    window_of,
)

NORM = NormKind.RMS_ONE_PLUS
LOCAL = "local"


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    family = keys.text("model_type")
    if keys.flag("use_bidirectional_attention"):
        keys.refuse("use_bidirectional_attention", True, "only causal attention is known for this model type")
    heads = heads_of(keys, hidden[0].size)
    third = family == "gemma3_text"
    mlp = feed_forward(keys, hidden, _act(keys, family))

    def layer(window: int) -> tuple[Op, ...]:
        bias = keys.flag("attention_bias")
        capped = family == "gemma2" and keys.nullable("attn_logit_softcapping") is not None
        tables = LOCAL if third and window else ""
        norm = HeadNorm(NORM, Place.LATE) if third else None
        scores = scores_of(keys, heads, window, capped)
        attention = SelfAttention(heads, scores, Rope(heads.width, heads.width, tables=tables), bias, bias, norm)
        return _layer(hidden, self_attention(hidden, attention), mlp, family != "gemma")

    windows = _windows(keys, family)
    used = dict.fromkeys(LOCAL if third and window else "" for window in windows)
    return decoder(keys, family, grouped(windows, layer), Rotary(heads.width, tuple(used)), _trunk(keys, hidden))


def _act(keys: Keys, family: str) -> ActKind:
    """The activation function; the first Gemma reads `gelu` as the tanh formula."""
    if family == "gemma":
        return keys.choice("hidden_act", {**ACTIVATIONS, "gelu": ActKind.GELU_TANH}, ActKind.GELU_TANH)
    return keys.choice("hidden_activation", ACTIVATIONS, ActKind.GELU_TANH)


def _layer(hidden: Dims, attention: tuple[Op, ...], mlp: tuple[Op, ...], both: bool) -> tuple[Op, ...]:
    """A layer; `both`: each branch is normalised before and after, else before only."""
    if not both:
        return (
            normed("input_layernorm", hidden, NORM),
            *attention,
            residual("attention residual", hidden),
            normed("post_attention_layernorm", hidden, NORM),
            *mlp,
            residual("feed-forward residual", hidden),
        )
    return (
        normed("input_layernorm", hidden, NORM),
        *attention,
        normed("post_attention_layernorm", hidden, NORM, "x"),
        residual("attention residual", hidden),
        normed("pre_feedforward_layernorm", hidden, NORM),
        *mlp,
        normed("post_feedforward_layernorm", hidden, NORM, "x"),
        residual("feed-forward residual", hidden),
    )


def _windows(keys: Keys, family: str) -> list[int]:
    """Each layer's window: every second layer's in Gemma 2, all but each sixth layer's in Gemma 3."""
    layers = keys.integer("num_hidden_layers")
    if family == "gemma":
        return [0] * layers
    window = window_of(keys)
    kinds = layer_kinds(keys, layers, every_but(keys.integer("sliding_window_pattern")))
    return [window if kind == SLIDING else 0 for kind in kinds]


def _trunk(keys: Keys, hidden: Dims) -> Trunk:
    scale = Op("model.embed_tokens", Scale(tensor=True), ("h",), ("h",), hidden)
    return Trunk(NORM, (scale,), capped_logits(keys), (Buffer("model.embed_tokens.embed_scale", ()),))


def capped_logits(keys: Keys) -> tuple[Op, ...]:
    """The logits through a tanh between two numbers, where `final_logit_softcapping` is given."""
    logits, vocab = ("logits",), axis(Dim.VOCAB, keys.integer("vocab_size"))
    if keys.nullable("final_logit_softcapping") is None:
        return ()
    return (
        Op("logits over the cap", Scale(), logits, logits, vocab),
        Op("logits' tanh", Act(ActKind.TANH), logits, logits, vocab),
        Op("logits times the cap", Scale(), logits, logits, vocab),
    )
