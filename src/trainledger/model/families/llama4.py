"""Llama 4's text model: layers without positions among layers that see chunks, and in every n-th layer experts that
each see every token, beside a shared one.

Source: transformers/models/llama4/modeling_llama4.py (5.24.0): Llama4TextDecoderLayer, Llama4TextAttention,
Llama4TextMoe.
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, act_of, decoder, every_but, leaving, normed
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import Heads, axis, gated
from trainledger.model.program import (
    Add,
    ChunkAttention,
    EveryExpert,
    Model,
    Norm,
    NormKind,
    Op,
    Pairs,
    Rotary,
    SigmoidRouter,
    SummedExperts,
    Tempered,
    Turn,
)
from trainledger.model.self_attention import SelfAttention, heads_of, self_attention

CHUNKED = "chunked_attention"
KINDS = (CHUNKED, "full_attention")
MLP = "feed_forward"
NORM = NormKind.RMS_METHOD


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    heads = heads_of(keys, hidden[0].size)
    chosen, turned = _moe_layers(keys, layers), _turned(keys, layers)
    chunks = _chunks(keys, turned)

    def layer(kind: tuple[bool, bool, int]) -> tuple[Op, ...]:
        has, turns, chunk = kind
        attention = _attention(keys, hidden, heads, (turns, chunk))
        return (
            normed("input_layernorm", hidden, NORM),
            *attention,
            Op("attention residual", Add(), ("h", "attention"), ("h",), hidden, ("x",)),
            normed("post_attention_layernorm", hidden, NORM),
            *(_experts(keys, hidden) if has else _dense(keys, hidden)),
        )

    kinds = [(at in chosen, turned[at], chunks[at]) for at in range(layers)]
    return decoder(keys, "llama4_text", moe.blocks(keys, kinds, layer), Rotary(heads.width, compound=True), Trunk(NORM))


def _moe_layers(keys: Keys, layers: int) -> frozenset[int]:
    """Layers with experts: those listed (`moe_layers`), else the last of every `interleave_moe_layer_step`."""
    if keys.raw("moe_layers") is not None:
        return frozenset(keys.indices("moe_layers"))
    step = keys.integer("interleave_moe_layer_step")
    return frozenset(range(step - 1, layers, step))


def _turned(keys: Keys, layers: int) -> list[bool]:
    """Whether each layer turns queries and keys: by default all but every fourth."""
    given = [bool(flag) for flag in keys.indices("no_rope_layers")]
    if given and len(given) < layers:
        keys.refuse("no_rope_layers", len(given), f"one entry for each of {layers} layers is needed")
    if len(given) >= layers:
        return given[:layers]
    turns = every_but(keys.integer("no_rope_layer_interval"))
    return [turns(at) for at in range(layers)]


def _chunks(keys: Keys, turned: list[bool]) -> list[int]:
    """The chunk that each layer's tokens see (0: all that came before): by default in layers with positions."""
    size = keys.integer("attention_chunk_size", default=0, least=0)
    kinds = keys.nullable("layer_types")
    if kinds is None:
        return [size if turns else 0 for turns in turned]
    if not isinstance(kinds, list | tuple) or len(kinds) != len(turned) or any(kind not in KINDS for kind in kinds):
        keys.refuse("layer_types", kinds, f"{len(turned)} of {' or '.join(KINDS)} are needed, one for each layer")
        return [0 for _ in turned]
    return [size if kind == CHUNKED else 0 for kind in kinds]


def _attention(keys: Keys, hidden: Dims, heads: Heads, how: tuple[bool, int]) -> tuple[Op, ...]:
    """Queries and keys that turn are normalised after that, without a weight; those that do not may be tempered."""
    turns, chunk = how
    bias = keys.flag("attention_bias")
    dropout = keys.number("attention_dropout")
    shape = heads.query, heads.kv, heads.width
    scores = ChunkAttention(*shape, dropout=dropout, window=chunk, upcast=False, back=False)
    tempered = Tempered(early=False) if keys.raw("attn_temperature_tuning") and not turns else None
    rope = Pairs(Turn.WHOLE) if turns else None
    spec = SelfAttention(heads, scores, rope, bias, bias, out="attention", tempered=tempered)
    ops = self_attention(hidden, spec)
    if not (turns and keys.flag("use_qk_norm")):
        return ops
    after = 1 + next(at for at, op in enumerate(ops) if isinstance(op.spec, Pairs))
    bare = Norm(NormKind.RMS_PLAIN, None)
    norms = (Op("self_attn.qk_norm", bare, (name,), (name,), heads.dims(kv=name == "k")) for name in ("q", "k"))
    return (*ops[:after], *norms, *ops[after:])


def _dense(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    width = keys.integer("intermediate_size_mlp")
    return (
        *gated(MLP, hidden, width, act_of(keys)),
        Op("feed-forward residual", Add(), ("h", "x"), ("h",), hidden, ("attention", "x")),
    )


def _experts(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Router, experts and the shared expert of the same width, to whose result the experts' sum is added."""
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    _, top_k = moe.routed(keys)
    gate_up, down = moe.transposed(keys, f"{MLP}.experts", hidden, width)
    router = SigmoidRouter(moe.router_weight(keys, f"{MLP}.router", hidden), top_k)
    shared = moe.rows(leaving(gated(f"{MLP}.shared_expert", hidden, width, act_of(keys)), "shared"))
    named = ("x", "scores", "scored", "made", "shared")
    return (
        Op(f"{MLP}.router", router, ("x",), ("logits of experts", "scores"), router.weight.dims[:1]),
        Op(f"{MLP}.experts", EveryExpert(gate_up, down, act_of(keys)), ("x", "scores"), ("scored", "made"), hidden),
        *shared,
        Op(MLP, SummedExperts(), ("made", "shared"), ("fed",), hidden, named),
        Op("feed-forward residual", Add(), ("h", "fed"), ("h",), hidden, ("attention", "logits of experts", "fed")),
    )
