"""GLM-4.5, dots.llm1 and Solar Open: attention with grouped keys, experts and their router as DeepSeek V3 has them.

Sources: transformers/models/{glm4_moe,dots1,solar_open}/modeling_*.py (5.24.0): *DecoderLayer, *Attention, *MoE.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import SLIDING, Trunk, act_of, decoder, feed_forward, layer_kinds, pre_norm
from trainledger.model.families import moe
from trainledger.model.families.deepseek import corrections, further, mixture
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, axis
from trainledger.model.program import Join, Model, NormKind, Op, Rope, Rotary
from trainledger.model.self_attention import (
    HeadNorm,
    Place,
    SelfAttention,
    heads_of,
    rotary_width,
    scores_of,
    self_attention,
    window_of,
)

DOTS, SOLAR = "dots1", "solar_open"


def build(keys: Keys) -> Model:
    """The model of these keys: `glm4_moe`, `dots1` or `solar_open`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    heads, family = heads_of(keys, hidden[0].size), keys.text("model_type")
    rotary = rotary_width(keys, heads.width) if family == "glm4_moe" else heads.width
    experts, dense = mixture(keys, hidden), _dense(keys, layers)
    plain = feed_forward(keys, hidden, act_of(keys)) if dense else ()
    groups = keys.integer("n_group", default=1)
    keys.divides("n_group", groups, "n_routed_experts", keys.integer(*moe.EXPERTS))

    def layer(kind: moe.Kind) -> tuple[Op, ...]:
        without, window = kind
        attention = _attention(keys, hidden, heads, (rotary, window))
        return pre_norm(hidden, attention, plain if without else experts)

    windows = _windows(keys, layers) if family == DOTS else [0] * layers
    blocks = moe.blocks(keys, [(at in dense, window) for at, window in enumerate(windows)], layer)
    if not keys.integer("n_shared_experts", default=0, least=0):
        blocks = tuple(moe.uncovered(block, moe.NO_SHARED) if block.top_k else block for block in blocks)
    model = decoder(keys, family, blocks, Rotary(rotary), Trunk(buffers=corrections(keys, blocks)))
    count = keys.integer("num_mtp_layers", "num_nextn_predict_layers", default=0, least=0)
    return replace(model, further=further(keys, model, layer((False, 0)), count))


def _dense(keys: Keys, layers: int) -> frozenset[int]:
    """Layers without experts: the first ones; none in Solar Open."""
    first = 0 if keys.text("model_type") == SOLAR else keys.integer("first_k_dense_replace", least=0)
    return frozenset(range(min(first, layers)))


def _attention(keys: Keys, hidden: Dims, heads: Heads, how: tuple[int, int]) -> tuple[Op, ...]:
    """Queries and keys normed by head: where asked for (GLM), in each layer (dots), or nowhere. Part of a head turns in
    GLM, whose turned and passing parts are joined even where nothing passes."""
    rotary, window = how
    family, bias = keys.text("model_type"), keys.flag("attention_bias")
    glm, dots = family == "glm4_moe", family == DOTS
    norm = HeadNorm(NormKind.RMS, Place.EACH if dots else Place.LATE)
    normed = dots or (glm and keys.flag("use_qk_norm"))
    scores = replace(scores_of(keys, heads, window), head_first=glm)
    rope = Rope(rotary, heads.width, join=Join.LAST if glm else Join.NONE)
    return self_attention(hidden, SelfAttention(heads, scores, rope, bias, bias and dots, norm if normed else None))


def _windows(keys: Keys, layers: int) -> list[int]:
    """Each layer's window (0: none): by default from layer `max_window_layers` on."""
    window, first = window_of(keys), keys.integer("max_window_layers", least=0)
    kinds = layer_kinds(keys, layers, lambda at: window > 0 and at >= first)
    return [window if kind == SLIDING else 0 for kind in kinds]
