"""Mistral and Ministral: Llama with a sliding window over layers; Ministral 3 times each query by a number.

Sources: transformers/models/{mistral,ministral,ministral3}/modeling_*.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim
from trainledger.model.decoder import (
    BOTH_MASKS,
    SLIDING,
    Trunk,
    act_of,
    decoder,
    feed_forward,
    grouped,
    layer_kinds,
    pre_norm,
)
from trainledger.model.keys import Keys
from trainledger.model.parts import axis
from trainledger.model.program import Model, Op, Rope, Rotary, Tempered
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention, window_of


def build(keys: Keys) -> Model:
    """The model of these keys: `mistral`, `ministral` or `ministral3`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    family = keys.text("model_type")
    tempered = Tempered(early=True) if family == "ministral3" else None
    mlp = feed_forward(keys, hidden, act_of(keys))

    def layer(window: int) -> tuple[Op, ...]:
        scores, rope = scores_of(keys, heads, window), Rope(heads.width, heads.width)
        return pre_norm(hidden, self_attention(hidden, SelfAttention(heads, scores, rope, tempered=tempered)), mlp)

    trunk = Trunk(masks=BOTH_MASKS if family == "ministral" else ())
    return decoder(keys, family, grouped(_windows(keys, family), layer), Rotary(heads.width), trunk)


def _windows(keys: Keys, family: str) -> list[int]:
    """Each layer's window (0: none): in Ministral that of the layers that `layer_types` names, else every layer's."""
    window, layers = window_of(keys), keys.integer("num_hidden_layers")
    if family != "ministral":
        return [window] * layers
    return [window if kind == SLIDING else 0 for kind in layer_kinds(keys, layers, lambda _: window > 0)]
