"""GPT-2: learned positions, LayerNorm before each branch, fused query, key and value projection.

Source: transformers/models/gpt2/modeling_gpt2.py (5.24.0): GPT2Model, GPT2Block, GPT2Attention, GPT2MLP; Conv1D of
transformers/pytorch_utils.py.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.model_types_layernorm import WIDENING
from trainledger.model.decoder import weights_of
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    dropped,
    equal_heads,
    language_head,
    layer_norm,
    looked_up,
    summed,
    table,
)
from trainledger.model.parts import ACTIVATIONS, Heads, axis, by_heads
from trainledger.model.program import Act, ActKind, Attention, Block, Handed, Linear, Model, Op, Role, Split, Weight

FUSED = ("q", "k", "v")


def conv1d(name: str, source: Dims, target: Dims, ins: str, out: str) -> Op:
    """A Conv1D: a linear layer whose weight is [source, target]."""
    weight = Weight(f"{name}.weight", (*source, *target))
    return Op(name, Linear(weight, Weight(f"{name}.bias", target, Role.BIAS), conv1d=True), (ins,), (out,), target)


def self_attention(keys: Keys, heads: Heads, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `o`."""
    each = heads.dims()
    fused = (Axis(Dim.SLOTS, len(FUSED)), *each)
    spec = Attention(heads.query, heads.kv, heads.width, dropout=keys.number("attn_pdrop"), upcast=False)
    return (
        conv1d("attn.c_attn", hidden, fused, "x", "qkv"),
        Op("attn.split", Split((each,) * len(FUSED), chunk=True), ("qkv",), FUSED, each, ("qkv",)),
        *(by_heads(f"attn.{name}", each, name, rotated=False) for name in ("v", "q")),
        Op("attn.attention", spec, FUSED, ("o",), each),
        conv1d("attn.c_proj", each, hidden, "o", "o"),
        dropped("attn.resid_dropout", keys.number("resid_pdrop"), "o", hidden, FUSED),
    )


def feed_forward(keys: Keys, hidden: Dims) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `y`."""
    inner = axis(Dim.FFN, keys.integer("n_inner", default=WIDENING.count * hidden[0].size))
    act = keys.choice("activation_function", ACTIVATIONS, ActKind.GELU_NEW)
    return (
        conv1d("mlp.c_fc", hidden, inner, "x", "y"),
        Op("mlp.act", Act(act), ("y",), ("y",), inner),
        conv1d("mlp.c_proj", inner, hidden, "y", "y"),
        dropped("mlp.dropout", keys.number("resid_pdrop"), "y", hidden),
    )


def layer(attention: tuple[Op, ...], mlp: tuple[Op, ...], hidden: Dims) -> tuple[Op, ...]:
    """One block: the attention's result keeps its name to the end."""
    return (
        layer_norm("ln_1", hidden, "h", "x"),
        *attention,
        summed("attention residual", ("o", "h"), "h", hidden, ("x",)),
        layer_norm("ln_2", hidden, "h", "x"),
        *mlp,
        summed("feed-forward residual", ("h", "y"), "h", hidden, ("x", "y", "o")),
    )


def whole(keys: Keys, family: str, ops: tuple[Op, ...], hidden: Dims) -> Model:
    """The model around equal blocks (GPT-2 and GPT-BigCode)."""
    if keys.flag("add_cross_attention"):
        keys.refuse("add_cross_attention", True, "a model without an encoder is needed")
    if keys.flag("reorder_and_upcast_attn"):
        keys.refuse("reorder_and_upcast_attn", True, "attention in the order of the heads is needed")
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.wte", vocab, hidden)
    places = Axis(Dim.POSITIONS, keys.integer("n_positions", "max_position_embeddings"))
    positions = table("transformer.wpe", places, hidden, Role.POSITION)
    return Model(
        family=family,
        handed=Handed(by_position=("mask",), rebound=True),
        prologue=(
            looked_up("transformer.wte", words, "inputs_embeds"),
            looked_up("transformer.wpe", positions, "position_embeds", "position_ids", per_batch=False),
            summed("transformer.embeddings", ("inputs_embeds", "position_embeds"), "h", hidden),
            dropped("transformer.drop", keys.number("embd_pdrop"), "h", hidden),
        ),
        embeddings=(words, positions),
        blocks=(
            Block("transformer.h", ops, weights_of(ops), tuple(range(keys.integer("n_layer", "num_hidden_layers")))),
        ),
        head=language_head(
            (layer_norm("transformer.ln_f", hidden, "h", "h"),), words, "lm_head", keys.flag("tie_word_embeddings")
        ),
        hidden=hidden[0],
        vocab=vocab.size,
    )


def width(keys: Keys) -> tuple[Dims, Heads]:
    """The hidden size and the heads under either of their names."""
    hidden = axis(Dim.HIDDEN, keys.integer("n_embd", "hidden_size"))
    name = "num_attention_heads" if "num_attention_heads" in keys.given else "n_head"
    return hidden, equal_heads(keys, name, "n_embd", hidden[0].size)


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden, heads = width(keys)
    return whole(keys, "gpt2", layer(self_attention(keys, heads, hidden), feed_forward(keys, hidden), hidden), hidden)
