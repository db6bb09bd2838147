"""Megatron-Core's GPT: free of any published shape; attention and feed-forward cut as Megatron's modules are.

Names are Megatron's own. Source: megatron/core/models/gpt/{gpt_model,gpt_layer_specs}.py (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.megatron import QKV
from trainledger.model.families import megatron_mla, megatron_moe, megatron_mtp
from trainledger.model.keys import Keys
from trainledger.model.operations_megatron import (
    Activated,
    Along,
    Core,
    Joined,
    Looked,
    Normalise,
    Parallel,
    Queries,
    Turned,
)
from trainledger.model.parts import ACTIVATIONS, Heads, axis
from trainledger.model.program import ActKind, Block, Head, Model, Op, Role, Rotary, Weight
from trainledger.model.self_attention import heads_of

NORMS = {"LayerNorm": True, "RMSNorm": False}  # whether there is a bias
POSITIONS = {"learned_absolute": True, "rope": False, "yarn": False, "none": False}
TURNED = ("rope", "yarn")
# which function it is moves no memory here: each saves what it read, fused or compiled
FUNCTIONS = {**ACTIVATIONS, "quick_gelu": ActKind.GELU_FAST}
LAYERS = "decoder.layers"


@dataclass(frozen=True, slots=True)
class Shape:
    """What layers are made of: hidden dims, heads, whether norms and linear layers have biases, dropouts."""

    hidden: Dims
    heads: Heads
    centred: bool
    biased: bool
    dropout: float
    attention_dropout: float
    rotary: bool
    qk_norm: bool
    qkv_bias: bool

    @classmethod
    def of(cls, keys: Keys) -> Shape:
        """The shape that these keys ask for."""
        hidden = keys.integer("hidden_size")
        return cls(
            axis(Dim.HIDDEN, hidden),
            heads_of(keys, hidden),
            keys.choice("normalization", NORMS, True),
            keys.flag("add_bias_linear"),
            keys.number("hidden_dropout"),
            keys.number("attention_dropout"),
            keys.text("position_embedding_type") in TURNED,
            keys.flag("qk_layernorm"),
            keys.flag("add_bias_linear") or keys.flag("add_qkv_bias"),
        )

    def norm(self, name: str, source: str, out: str, dims: Dims | None = None) -> Op:
        """A norm as an operation."""
        wide = dims or self.hidden
        weight = Weight(f"{name}.weight", wide[-1:], Role.NORM)
        bias = Weight(f"{name}.bias", wide[-1:], Role.NORM) if self.centred else None
        return Op(name, Normalise(weight, bias), (source,), (out,), wide)

    def linear(self, name: str, along: Along, source: Dims, target: Dims) -> Parallel:
        """A linear layer with its weights named."""
        bias = self.bias(name, target) if self.biased else None
        return Parallel(along, Weight(f"{name}.weight", (*target, *source)), bias)

    def bias(self, name: str, target: Dims) -> Weight:
        """A linear layer's bias."""
        return Weight(f"{name}.bias", target, Role.BIAS)

    def joined(self, name: str, linear: Parallel) -> Op:
        """The branch's result with the layer's bias, dropped, plus the residual."""
        return Op(name, Joined(self.dropout, linear.bias), ("h", "x"), ("h",), self.hidden, ("x",))


def attention(shape: Shape) -> tuple[Op, ...]:
    """Self-attention: reads `h`, adds to it."""
    heads, name = shape.heads, "self_attention"
    rows = axis(Dim.QKV, (heads.query + QKV.others * heads.kv) * heads.width)
    inner = axis(Dim.HEADS, heads.query * heads.width)
    qkv = shape.linear(f"{name}.linear_qkv", Along.COLUMN, shape.hidden, rows)
    if shape.qkv_bias:
        qkv = replace(qkv, bias=shape.bias(f"{name}.linear_qkv", rows))
    proj = shape.linear(f"{name}.linear_proj", Along.ROW, inner, shape.hidden)
    normed: tuple[Op, ...] = ()
    if shape.qk_norm:
        dims = axis(Dim.HEAD_DIM, heads.width)
        normed = tuple(shape.norm(f"{name}.{one}_layernorm", one, one, dims) for one in ("q", "k"))
    turned = (Op(f"{name}.rotary", Turned(), ("q", "k"), ("q", "k"), heads.dims()),) if shape.rotary else ()
    return (
        shape.norm("input_layernorm", "h", "n"),
        Op(f"{name}.linear_qkv", replace(qkv, later=False), ("n",), ("qkv",), rows),
        Op(name, Queries(), ("qkv",), ("q", "k", "v"), heads.dims(kv=True), ("qkv",)),
        *normed,
        *turned,
        Op(f"{name}.core_attention", Core(shape.attention_dropout), ("q", "k", "v"), ("o",), inner),
        Op(f"{name}.linear_proj", proj, ("o",), ("x",), shape.hidden, ("q", "k", "v", "o")),
        shape.joined("self_attn_bda", proj),
    )


def attended(keys: Keys, shape: Shape) -> tuple[Op, ...]:
    """Self-attention, through latents where there are any."""
    return megatron_mla.attention(shape, keys) if megatron_mla.latent(keys) else attention(shape)


def feed_forward(shape: Shape, width: int, gated: bool) -> tuple[Op, ...]:
    """The dense feed-forward: reads `h`, adds to it."""
    inner = axis(Dim.FFN, width)
    wide = axis(Dim.FFN, width + width if gated else width)
    up = shape.linear("mlp.linear_fc1", Along.COLUMN, shape.hidden, wide)
    down = shape.linear("mlp.linear_fc2", Along.ROW, inner, shape.hidden)
    return (
        shape.norm("pre_mlp_layernorm", "h", "n"),
        Op("mlp.linear_fc1", up, ("n",), ("x",), wide),
        Op("mlp.activation_func", Activated(gated, up.bias), ("x",), ("x",), inner),
        Op("mlp.linear_fc2", down, ("x",), ("x",), shape.hidden),
        shape.joined("mlp_bda", down),
    )


def weights_of(ops: tuple[Op, ...]) -> tuple[Weight, ...]:
    """Every weight that these operations read, each once, in the order of Megatron's modules."""
    found: dict[Weight, None] = {}
    for op in ops:
        for name in ("weight", "bias", "up", "down"):
            one = getattr(op.spec, name, None)
            if isinstance(one, Weight):
                found[one] = None
        found |= dict.fromkeys(getattr(op.spec, "biases", ()))
    return tuple(found)


def build(keys: Keys) -> Model:
    """The whole model of these keys."""
    shape = Shape.of(keys)
    gated = keys.flag("gated_linear_unit")
    keys.choice("hidden_act", FUNCTIONS, ActKind.GELU)
    layers = keys.integer("num_hidden_layers")
    if not megatron_moe.routed(keys):
        ops = (*attended(keys, shape), *feed_forward(shape, keys.integer("intermediate_size"), gated))
        blocks: tuple[Block, ...] = (Block(LAYERS, ops, weights_of(ops), tuple(range(layers))),)
    else:
        blocks = tuple(_mixed(keys, shape, gated, layers))
    model = around(keys, shape, blocks)
    count = keys.integer("num_nextn_predict_layers", default=0, least=0)
    if not count:
        return model
    last = max(blocks, key=lambda block: max(block.layers))
    return replace(model, further=(megatron_mtp.further(shape, count, last.ops, last.top_k),))


def _mixed(keys: Keys, shape: Shape, gated: bool, layers: int) -> Iterator[Block]:
    """Layers of each kind: dense ones, and those with experts."""
    kinds = megatron_moe.routed_layers(keys, layers)
    for kind in dict.fromkeys(kinds):
        numbers = tuple(at for at, one in enumerate(kinds) if one is kind)
        if kind:
            ops = (*attended(keys, shape), *megatron_moe.feed_forward(shape, keys, gated))
            yield Block(LAYERS, ops, weights_of(ops), numbers, keys.integer("num_experts_per_tok", default=1))
            continue
        ops = (*attended(keys, shape), *feed_forward(shape, keys.integer("intermediate_size"), gated))
        yield Block(LAYERS, ops, weights_of(ops), numbers)


def around(keys: Keys, shape: Shape, blocks: tuple[Block, ...]) -> Model:
    """Blocks between Megatron's embedding and its output layer."""
    vocab = axis(Dim.VOCAB, keys.integer("vocab_size"))
    word = Weight("embedding.word_embeddings.weight", (*vocab, *shape.hidden), Role.EMBEDDING)
    learned = keys.choice("position_embedding_type", POSITIONS, True)
    positions = None
    if learned:
        count = Axis(Dim.POSITIONS, keys.integer("max_position_embeddings"))
        positions = Weight("embedding.position_embeddings.weight", (count, *shape.hidden), Role.POSITION)
    tied = keys.flag("tie_word_embeddings")
    out = Weight("output_layer.weight", word.dims, Role.HEAD, tied=tied)
    final = shape.norm("decoder.final_layernorm", "h", "h")
    logits = Op("output_layer", Parallel(Along.COLUMN, word if tied else out, later=False), ("h",), ("logits",), vocab)
    norms = weights_of((final,))
    looked = Looked(word, positions, shape.dropout)
    return Model(
        family="megatron-gpt",
        prologue=(Op("embedding", looked, ("input_ids",), ("h",), shape.hidden),),
        embeddings=tuple(one for one in (word, positions) if one is not None),
        blocks=blocks,
        head=Head((final, logits), (*norms, out)),
        hidden=shape.hidden[0],
        vocab=vocab[0].size,
        rotary=Rotary(_turns(keys, shape)) if shape.rotary else None,
    )


def _turns(keys: Keys, shape: Shape) -> int:
    """A head's elements that turn."""
    return keys.integer("qk_rope_head_dim") if megatron_mla.latent(keys) else shape.heads.width
