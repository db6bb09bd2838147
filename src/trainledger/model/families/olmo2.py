"""OLMo 2 and 3, EXAONE 4: each branch's result is normalised, not its input, and so are queries and keys: over all
heads at once (OLMo), or by head (EXAONE). Layers with a sliding window among others from OLMo 3 on.

Sources: transformers/models/{olmo2,olmo3,exaone4}/modeling_*.py (5.24.0).
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import (
    BOTH_MASKS,
    SLIDING,
    Trunk,
    act_of,
    decoder,
    every_but,
    feed_forward,
    grouped,
    layer_kinds,
    normed,
    reading,
)
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, axis, residual
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

EXAONE, THIRD = "exaone4", "olmo3"
LOCAL = "local"


def build(keys: Keys) -> Model:
    """The model of these keys: `olmo2`, `olmo3` or `exaone4`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = heads_of(keys, hidden[0].size)
    family = keys.text("model_type")
    exaone = family == EXAONE
    norm = NormKind.RMS if exaone else NormKind.RMS_LATE_CAST
    mlp = reading(feed_forward(keys, hidden, act_of(keys)), "h")
    windows = _windows(keys, family)

    def layer(window: int) -> tuple[Op, ...]:
        bare = exaone and window_of(keys) > 0 and not window
        rope = None if bare else Rope(heads.width, heads.width, back=not exaone, tables=_tables(family, window))
        return _layer(hidden, _attention(keys, hidden, heads, (window, rope, norm)), mlp, norm)

    used = tuple(dict.fromkeys(_tables(family, window) for window in windows))
    trunk = Trunk(norm, masks=BOTH_MASKS if family == THIRD else ())
    return decoder(keys, family, grouped(windows, layer), Rotary(heads.width, used, high=not exaone), trunk)


def _tables(family: str, window: int) -> str:
    """Which rotary tables a layer reads: OLMo 3 has some of their own for layers with a window."""
    return LOCAL if family == THIRD and window else ""


def _windows(keys: Keys, family: str) -> list[int]:
    """Each layer's window (0: none): by default all layers' but every fourth's (`sliding_window_pattern`)."""
    layers = keys.integer("num_hidden_layers")
    if family == "olmo2":
        return [0] * layers
    window = window_of(keys)
    stated = keys.nullable("layer_types") is not None  # EXAONE's period may be a word then, which nothing reads
    turns = every_but(1 if stated or not window else keys.integer("sliding_window_pattern"))
    return [window if kind == SLIDING else 0 for kind in layer_kinds(keys, layers, turns)]


def _attention(keys: Keys, hidden: Dims, heads: Heads, how: tuple[int, Rope | None, NormKind]) -> tuple[Op, ...]:
    window, rope, kind = how
    bias = keys.flag("attention_bias")
    norm = HeadNorm(kind, Place.LATE if kind is NormKind.RMS else Place.WIDE)
    return self_attention(hidden, SelfAttention(heads, scores_of(keys, heads, window), rope, bias, bias, norm))


def _layer(hidden: Dims, attention: tuple[Op, ...], mlp: tuple[Op, ...], norm: NormKind) -> tuple[Op, ...]:
    return (
        *reading(attention, "h"),
        normed("post_attention_layernorm", hidden, norm, "x"),
        residual("attention residual", hidden),
        *mlp,
        normed("post_feedforward_layernorm", hidden, norm, "x"),
        residual("feed-forward residual", hidden),
    )
