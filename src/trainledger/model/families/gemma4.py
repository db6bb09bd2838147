"""Gemma 4's language models: sliding and full layers with heads of their own, keys used as values, experts beside the
dense feed-forward, embeddings by layer.

Sources: transformers/models/gemma4/modeling_gemma4.py (5.24.0): Gemma4TextDecoderLayer, Gemma4TextAttention,
Gemma4TextRouter, Gemma4TextExperts; configuration_gemma4.py, Gemma4TextConfig.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import (
    BOTH_MASKS,
    SLIDING,
    Trunk,
    decoder,
    every_but,
    layer_kinds,
    leaving,
    normed,
    reading,
    weights_of,
)
from trainledger.model.families import moe
from trainledger.model.families.gemma import capped_logits
from trainledger.model.keys import Keys
from trainledger.model.parts import ACTIVATIONS, Heads, attend, axis, gated, linear, norm, residual
from trainledger.model.program import (
    ActKind,
    Add,
    Buffer,
    Experts,
    Linear,
    Model,
    Norm,
    NormKind,
    Op,
    Role,
    Rope,
    Rotary,
    Scale,
    ScaledBest,
    Stored,
    View,
    Weight,
    Weighted,
)
from trainledger.model.self_attention import scores_of, window_of

NORM, LOCAL, NAME = NormKind.RMS_POWER, "local", "self_attn"
UNDERSCORE = "attention weights"  # the layer calls these and, later, the router's probabilities by one name
SMALL = "embeddings by layer (hidden_size_per_layer_input) and shared keys (num_kv_shared_layers) are not covered"


class Kind(NamedTuple):
    """A layer: its window (tokens; 0: none), its heads, whether keys are values too, whether others' are read instead,
    and whether it is the last of its kind to make some."""

    window: int
    heads: Heads
    equal: bool
    reads: bool
    stores: bool


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    if keys.raw("use_bidirectional_attention") == "all":
        keys.refuse("use_bidirectional_attention", "all", "only causal attention is known for this model type")
    kinds = _kinds(keys)
    blocks = moe.blocks(keys, kinds, lambda kind: _layer(keys, hidden, kind))
    if _by_layer(keys) or any(kind.reads for kind in kinds):
        blocks = tuple(moe.uncovered(block, SMALL) for block in blocks)
    full, local = (next((k.heads.width for k in kinds if bool(k.window) == slides), 0) for slides in (False, True))
    sets = tuple(dict.fromkeys(LOCAL if kind.window else "" for kind in kinds))
    rotary = Rotary(full, sets, own=((LOCAL, local),) if local else ())
    model = decoder(keys, "gemma4_text", blocks, rotary, _trunk(keys, hidden, len(kinds)))
    return _with_tables(keys, model, hidden, len(kinds))


def _kinds(keys: Keys) -> list[Kind]:
    """Each layer's kind; the last one is full whatever is said."""
    layers, window = keys.integer("num_hidden_layers"), window_of(keys)
    period = int(keys.preset["sliding_window_pattern"])  # the class's own, which reads no such key
    names = layer_kinds(keys, layers, every_but(period))
    slides = [name == SLIDING for name in names[:-1]] + [False]
    own = layers - keys.integer("num_kv_shared_layers", default=0, least=0)
    last = {kind: max((at for at in range(own) if slides[at] is kind), default=-1) for kind in set(slides)}
    if min(last.values()) < 0:
        keys.refuse("num_kv_shared_layers", layers - own, "a layer of each kind must make keys and values of its own")
    equal = keys.flag("attention_k_eq_v")
    heads = [_heads(keys, at, slide) for at, slide in enumerate(slides)]
    if len({(slide, one) for slide, one in zip(slides, heads, strict=True)}) > len(last):
        keys.refuse("per_layer_config", keys.raw("per_layer_config"), "layers of one kind must have the same heads")
    return [
        Kind(window if slide else 0, heads[at], equal and not slide, at >= own, at == last[slide])
        for at, slide in enumerate(slides)
    ]


def _heads(keys: Keys, at: int, slides: bool) -> Heads:
    """A layer's heads: those of full layers have a width of their own and, where keys are values, a number; or what
    `per_layer_config` says of its number."""
    query = keys.integer("num_attention_heads")
    count, width = "num_key_value_heads", "head_dim"
    listed = keys.raw("per_layer_config")
    if listed is not None:
        own = _own_keys(keys, listed, at)
        kv, size = own.integer(count), own.integer(width)
        keys.problems += own.problems
    elif slides:
        kv, size = keys.integer(count), keys.integer(width)
    else:
        apart = "num_global_key_value_heads"
        count = apart if keys.flag("attention_k_eq_v") and keys.raw(apart) is not None else count
        kv, size = keys.integer(count), keys.integer("global_head_dim")
    keys.divides(count, kv, "num_attention_heads", query)
    return Heads(query, kv, size)


def _own_keys(keys: Keys, listed: object, at: int) -> Keys:
    """The keys of one layer, where a saved config lists what differs from those of all, by numbers of equal width (05)
    as Transformers writes them."""
    numbered = {str(name).lstrip("0") or "0": one for name, one in listed.items()} if isinstance(listed, dict) else None
    given = numbered.get(str(at), {}) if numbered is not None else None
    if not isinstance(given, dict) or not given.keys() <= {"head_dim", "num_key_value_heads"}:
        keys.refuse("per_layer_config", given, "head_dim and num_key_value_heads of a layer, by its number, are known")
        given = {}
    return Keys({**keys.given, **given}, keys.preset)


def _layer(keys: Keys, hidden: Dims, kind: Kind) -> tuple[Op, ...]:
    mixed = keys.flag("enable_moe_block")
    width = keys.integer("intermediate_size")
    if kind.reads and keys.flag("use_double_wide_mlp"):
        width += width
    act = keys.choice("hidden_activation", ACTIVATIONS, ActKind.GELU_TANH)
    return (
        normed("input_layernorm", hidden, NORM),
        *_attention(keys, hidden, kind),
        normed("post_attention_layernorm", hidden, NORM, "x"),
        residual("attention residual", hidden),
        normed("pre_feedforward_layernorm", hidden, NORM),
        *gated("mlp", hidden, width, act),
        *(_experts(keys, hidden, act) if mixed else ()),
        normed("post_feedforward_layernorm", hidden, NORM, "x"),
        residual("feed-forward residual", hidden),
        *(_gate(keys, hidden) if _by_layer(keys) else ()),
        Op("layer_scalar", Scale(tensor=True, inplace=True), ("h",), ("h",), hidden),
    )


def _attention(keys: Keys, hidden: Dims, kind: Kind) -> tuple[Op, ...]:
    """Queries, then keys, then values: each projected, normed by head and, but for values, turned in token order."""
    heads, bias = kind.heads, keys.flag("attention_bias")
    rope = Rope(heads.width, heads.width, tables=LOCAL if kind.window else "")

    def projected(value: str, out: str) -> tuple[Op, ...]:
        dims, name = heads.dims(kv=value != "q"), f"{NAME}.{value}_proj"
        made = Op(name, linear(name, hidden, dims, bias), ("x",), (out,), dims)
        return (made, Op(name, View(straight=out != "v"), (out,), (out,), dims))

    def normal(value: str, source: str) -> Op:
        dims, name = heads.dims(kv=value != "q"), f"{NAME}.{value}_norm"
        spec = Norm(NORM, None) if value == "v" else norm(name, dims[-1:], NORM)
        return Op(name, spec, (source,), (value,), dims)

    def turned(value: str) -> Op:
        return Op(f"{NAME}.rotary", rope, (value,), (value,), heads.dims(kv=value != "q"))

    source = "v" if kind.equal else "k"  # the projection, which values name as well where they are made of it
    values = () if kind.equal else projected("v", "v")
    own = (*projected("k", source), *values, normal("k", source), turned("k"), normal("v", "v"))
    stored = Op(NAME, Stored(), ("k", "v"), (), ())
    out = linear(f"{NAME}.o_proj", heads.dims(), hidden, bias)
    return (
        *projected("q", "q"),
        normal("q", "q"),
        turned("q"),
        *(() if kind.reads else own),
        *((stored,) if kind.stores else ()),
        attend(NAME, heads, scores_of(keys, heads, kind.window)),
        Op(f"{NAME}.o_proj", out, ("o",), ("x",), hidden, ("q", "k", "v", "o")),
    )


def _experts(keys: Keys, hidden: Dims, act: ActKind) -> tuple[Op, ...]:
    """Beside the dense feed-forward's result `x`: what experts make of the same hidden states, each normed; the sum."""
    _, top_k = moe.routed(keys)
    gate_up, down = moe.expert_weights(keys, "experts", hidden, keys.integer(*moe.EXPERT_WIDTH))
    count = gate_up.dims[:1]
    scale = Weight("router.scale", hidden, Role.NORM)
    own = Weight("router.per_expert_scale", count, Role.NORM)
    logits = Linear(Weight("router.proj.weight", (*count, *hidden)), flat=True)
    chosen = (UNDERSCORE, "scores", "chosen")
    second = normed("pre_feedforward_layernorm_2", hidden, NORM, "rows")
    return (
        *leaving((normed("post_feedforward_layernorm_1", hidden, NORM, "x"),), "dense"),
        Op("rows", View(rows=True), ("h",), ("rows",), hidden),
        Op("router.norm", Norm(NORM, None), ("rows",), ("r",), hidden),
        Op("router", Weighted(scale), ("r",), ("r",), hidden),
        Op("router.proj", logits, ("r",), ("router_logits",), count),
        Op("router", ScaledBest(top_k, own), ("router_logits",), chosen, count, ("r", "router_logits")),
        *leaving((second,), "routed"),
        Op("experts", Experts(top_k, gate_up, down, act), ("routed", *chosen[1:]), ("routed",), hidden),
        Op("rows", View(rows=True), ("routed",), ("routed",), hidden),
        *leaving(reading((normed("post_feedforward_layernorm_2", hidden, NORM, "routed"),), "routed"), "routed"),
        Op("feed-forwards", Add(), ("dense", "routed"), ("x",), hidden),
    )


def _by_layer(keys: Keys) -> int:
    """The width of embeddings by layer; 0 for none."""
    return keys.integer("hidden_size_per_layer_input", least=0)


def _gate(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """The linear layers and the norm around a layer's own embedding."""
    narrow = axis(Dim.FFN, _by_layer(keys))
    gate, back = "per_layer_input_gate", "per_layer_projection"
    return (
        Op(gate, linear(gate, hidden, narrow), ("h",), ("x",), narrow),
        Op(back, linear(back, narrow, hidden), ("x",), ("x",), hidden),
        normed("post_per_layer_input_norm", hidden, NORM, "x"),
    )


def _with_tables(keys: Keys, model: Model, hidden: Dims, layers: int) -> Model:
    """With the table of embeddings by layer, and what is made of the words' own for all layers at once."""
    if not _by_layer(keys):
        return model
    wide, words = layers * _by_layer(keys), keys.integer("vocab_size_per_layer_input")
    name = "model.per_layer_model_projection"
    own = (
        Op(name, linear(name, hidden, axis(Dim.FFN, wide)), ("h",), ("x",), axis(Dim.FFN, wide)),
        normed("model.per_layer_projection_norm", axis(Dim.FFN, _by_layer(keys)), NORM, "x"),
    )
    table = Weight("model.embed_tokens_per_layer.weight", (Axis(Dim.VOCAB, words), Axis(Dim.FFN, wide)), Role.EMBEDDING)
    return replace(model, embeddings=(*model.embeddings, table, *weights_of(own)))


def _trunk(keys: Keys, hidden: Dims, layers: int) -> Trunk:
    scale = Op("model.embed_tokens", Scale(tensor=True), ("h",), ("h",), hidden)
    one = axis(Dim.ONE, 1)
    scalars = (Buffer(f"{moe.LAYERS}.{at}.layer_scalar", one) for at in range(layers))
    buffers = (Buffer("model.embed_tokens.embed_scale", ()), *scalars)
    return Trunk(NORM, (scale,), capped_logits(keys), buffers, BOTH_MASKS)
