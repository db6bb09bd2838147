"""Qwen3-Next and the language models of Qwen3.5: three layers of linear attention by the gated delta rule for each of
gated attention, whose heads turn in part; routed experts beside a shared one, or a plain feed-forward.

Sources: transformers/models/{qwen3_next,qwen3_5,qwen3_5_moe}/modeling_*.py (5.24.0).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.decoder import FULL, Trunk, act_of, decoder, every_but, feed_forward, normed
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.operations_linear import CausalConv, DeltaRule, GatedNorm, LinearHeads, Mixed, Transposed
from trainledger.model.parts import Heads, attend, axis, linear, norm, residual
from trainledger.model.program import (
    Act,
    ActKind,
    Copy,
    Join,
    Linear,
    Model,
    Multiply,
    NormKind,
    Op,
    Role,
    Rope,
    Rotary,
    Split,
    View,
    Weight,
)
from trainledger.model.self_attention import heads_of, rotary_width, scores_of

LINEAR = "linear_attention"
KINDS = (LINEAR, FULL)
NEXT, ROUTED = "qwen3_next", "qwen3_5_moe_text"
ATTENTION, DELTA = "self_attn", "linear_attn"
RMS = NormKind.RMS_ONE_PLUS
PARTS = ("query", "key", "value")


def build(keys: Keys) -> Model:
    """The model of these keys: `qwen3_next`, `qwen3_5_text` (no experts) or `qwen3_5_moe_text`."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    family, heads = keys.text("model_type"), heads_of(keys, hidden[0].size)
    rotary = rotary_width(keys, heads.width)
    full = _attention(keys, hidden, heads, rotary)
    own = _linear_heads(keys)
    mixer = _delta(keys, hidden, own)

    def layer(kind: tuple[bool, str]) -> tuple[Op, ...]:
        plain, attention = kind
        mlp = feed_forward(keys, hidden, act_of(keys)) if plain else _experts(keys, hidden)
        return (
            normed("input_layernorm", hidden, RMS),
            *(mixer if attention == LINEAR else full),
            residual("attention residual", hidden),
            normed("post_attention_layernorm", hidden, RMS),
            *mlp,
            residual("feed-forward residual", hidden),
        )

    blocks = moe.blocks(keys, list(zip(_plain(keys), _kinds(keys), strict=True)), layer)
    return decoder(keys, family, blocks, Rotary(rotary, each=family != NEXT), Trunk(norm=RMS))


def _kinds(keys: Keys) -> list[str]:
    """Each layer's kind of attention: `layer_types`, or all linear but the last of each period."""
    layers = keys.integer("num_hidden_layers")
    given = keys.nullable("layer_types")
    if given is None:
        others = every_but(keys.integer("full_attention_interval"))
        return [LINEAR if others(at) else FULL for at in range(layers)]
    kinds = list(given) if isinstance(given, list | tuple) else []
    if len(kinds) != layers or any(kind not in KINDS for kind in kinds):
        keys.refuse("layer_types", given, f"{layers} of {' or '.join(KINDS)} are needed, one for each layer")
        return [FULL for _ in range(layers)]
    return kinds


def _plain(keys: Keys) -> list[bool]:
    """Whether each layer is without experts."""
    layers, family = keys.integer("num_hidden_layers"), keys.text("model_type")
    if family != NEXT:
        return [family != ROUTED] * layers
    step, only = keys.integer("decoder_sparse_step"), keys.indices("mlp_only_layers")
    none = not keys.integer(*moe.EXPERTS, least=0)
    return [none or at in only or bool((at + 1) % step) for at in range(layers)]


def _experts(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    normalise = keys.text("model_type") != NEXT or keys.flag("norm_topk_prob")
    return moe.with_shared(keys, hidden, moe.sparse(keys, hidden, keys.integer(*moe.EXPERT_WIDTH), normalise))


def _attention(keys: Keys, hidden: Dims, heads: Heads, rotary: int) -> tuple[Op, ...]:
    """Queries come with a gate for every element of the result: both are one projection."""
    bias = keys.flag("attention_bias")
    query, shared = heads.dims(), heads.dims(kv=True)
    both = (query[0], Axis(Dim.HEAD_DIM, heads.width + heads.width))

    def projected(value: str, dims: Dims) -> Op:
        name = f"{ATTENTION}.{value}_proj"
        return Op(name, linear(name, hidden, dims, bias), ("x",), (value,), dims)

    def normal(value: str, dims: Dims) -> Op:
        name = f"{ATTENTION}.{value}_norm"
        return Op(name, norm(name, dims[-1:], RMS), (value,), (value,), dims)

    out = linear(f"{ATTENTION}.o_proj", query, hidden, bias)
    return (
        projected("q", both),
        Op(ATTENTION, View(straight=True), ("q",), ("q",), both),
        Op(ATTENTION, Split((query, query), chunk=True), ("q",), ("q", "gate"), query),
        Op(ATTENTION, Copy(), ("gate",), ("gate",), query),
        normal("q", query),
        projected("k", shared),
        Op(ATTENTION, View(rotated=True), ("k",), ("k",), shared),
        normal("k", shared),
        projected("v", shared),
        Op(ATTENTION, View(), ("v",), ("v",), shared),
        Op(f"{ATTENTION}.rotary", Rope(rotary, heads.width, join=Join.LAST), ("q", "k"), ("q", "k"), query),
        attend(ATTENTION, heads, replace(scores_of(keys, heads), head_first=True)),
        Op(ATTENTION, Act(ActKind.SIGMOID), ("gate",), ("share",), query),
        Op(ATTENTION, Multiply(), ("o", "share"), ("o",), query, ("share",)),
        Op(f"{ATTENTION}.o_proj", out, ("o",), ("x",), hidden, ("q", "k", "v", "gate", "o")),
    )


def _linear_heads(keys: Keys) -> LinearHeads:
    both, values = keys.integer("linear_num_key_heads"), keys.integer("linear_num_value_heads")
    keys.divides("linear_num_key_heads", both, "linear_num_value_heads", values)
    return LinearHeads(both, values, keys.integer("linear_key_head_dim"), keys.integer("linear_value_head_dim"))


def _delta(keys: Keys, hidden: Dims, heads: LinearHeads) -> tuple[Op, ...]:
    """Linear attention: projections, a short convolution over time, the delta rule, a gated norm, one projection."""
    single, past = Axis(Dim.ONE, 1), Axis(Dim.SLOTS, keys.integer("linear_conv_kernel_dim"))
    conv = CausalConv(Weight(f"{DELTA}.conv1d.weight", (heads.mixed, single, past), Role.MIXER), act_of(keys))
    rule = DeltaRule(
        heads, Weight(f"{DELTA}.A_log", heads.gates, Role.MIXER), Weight(f"{DELTA}.dt_bias", heads.gates, Role.MIXER)
    )
    gated = GatedNorm(Weight(f"{DELTA}.norm.weight", heads.value_dims[-1:], Role.NORM))
    both, values = heads.key_dims, heads.value_dims
    split = Split((both, both, values), chunk=True)
    fused = keys.text("model_type") == NEXT
    out = linear(f"{DELTA}.out_proj", values, hidden)
    named = ("qkvz", "ba") if fused else ()
    return (
        *(_fused(hidden, heads) if fused else _apart(hidden, heads)),
        Op(f"{DELTA}.conv1d", conv, ("mixed",), ("mixed",), (heads.mixed,)),
        Op(DELTA, split, ("mixed",), PARTS, values),
        Op(DELTA, rule, (*PARTS, "b", "a"), ("core", "beta", "decay"), values),
        Op(f"{DELTA}.norm", gated, ("core", "z"), ("core",), values),
        Op(
            f"{DELTA}.out_proj", out, ("core",), ("x",), hidden,
            (*named, "mixed", *PARTS, "z", "b", "a", "beta", "decay", "core"),
        ),
    )  # fmt: skip


def _project(name: str, hidden: Dims, size: int, out: str) -> Op:
    dims = axis(Dim.COLUMNS, size)
    spec: Linear = linear(f"{DELTA}.{name}", hidden, dims)
    return Op(f"{DELTA}.{name}", spec, ("x",), (out,), dims)


def _fused(hidden: Dims, heads: LinearHeads) -> tuple[Op, ...]:
    """Qwen3-Next: two projections, each laid out by heads of keys."""
    gates = heads.values * heads.value_width
    return (
        _project("in_proj_qkvz", hidden, heads.mixed.size + gates, "qkvz"),
        _project("in_proj_ba", hidden, heads.values + heads.values, "ba"),
        Op(DELTA, Mixed(heads), ("qkvz", "ba"), (*PARTS, "z", "b", "a", "mixed"), (heads.mixed,)),
    )


def _apart(hidden: Dims, heads: LinearHeads) -> tuple[Op, ...]:
    """Qwen3.5: a projection for each; the first is seen by channels and back."""
    return (
        _project("in_proj_qkv", hidden, heads.mixed.size, "mixed"),
        Op(DELTA, Transposed(), ("mixed",), ("mixed",), (heads.mixed,)),
        _project("in_proj_z", hidden, heads.values * heads.value_width, "z"),
        _project("in_proj_b", hidden, heads.values, "b"),
        Op(DELTA, Transposed(gates=True), ("b",), ("b",), heads.gates),
        _project("in_proj_a", hidden, heads.values, "a"),
    )
