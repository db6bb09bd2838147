"""GPT-J and CodeGen: one norm before parallel branches, neighbours that turn by a table that is looked up.

Sources: transformers/models/gptj/modeling_gptj.py and transformers/models/codegen/modeling_codegen.py (5.24.0):
GPTJBlock, GPTJAttention, GPTJRotaryEmbedding, CodeGenAttention.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.model_types_layernorm import CODEGEN_SHARDS, WIDENING
from trainledger.model.decoder import weights_of
from trainledger.model.families.gpt2 import width
from trainledger.model.keys import Keys
from trainledger.model.layered import (
    APART,
    dropped,
    embedded,
    language_head,
    layer_norm,
    plain,
    seen_by_heads,
    summed,
    table,
)
from trainledger.model.parts import ACTIVATIONS, Heads, linear
from trainledger.model.program import (
    ActKind,
    Block,
    Buffer,
    Copy,
    HighAttention,
    Join,
    Model,
    Op,
    Rope,
    Rotary,
    Split,
    View,
)

CODEGEN = "codegen"
MLP = ("mlp.fc_in", "mlp.act", "mlp.fc_out")
FUSED = ("q", "v", "k")  # in this order in each part of the projection


def _projected(hidden: Dims, heads: Heads) -> tuple[Op, ...]:
    """GPT-J's own layers: what turns is seen by token all the while."""
    each, found = heads.dims(), list[Op]()
    for value in ("q", "k", "v"):
        name = f"attn.{value}_proj"
        found.append(Op(name, linear(name, hidden, each), ("x",), (value,), each))
        found.append(
            seen_by_heads(name, value, each, False)
            if value == "v"
            else Op(name, View(straight=True), (value,), (value,), each)
        )
    return tuple(found)


def _fused(keys: Keys, hidden: Dims, heads: Heads) -> tuple[Op, ...]:
    """CodeGen's one layer: parts of several heads' queries, values and keys, gathered into copies."""
    each, name, shards = heads.dims(), "attn.qkv_proj", CODEGEN_SHARDS.count
    if heads.query % shards:
        keys.refuse("n_head", heads.query, f"a multiple of {shards} is needed: the projection is laid out in {shards}")
    wide = (each[0], Axis(Dim.SLOTS, len(FUSED)), each[1])
    copied = ("q", "k", "v") if heads.query > shards else ()
    return (
        Op(name, linear(name, hidden, wide), ("x",), ("qkv",), wide),
        Op("attn.split", Split((each,) * len(FUSED), chunk=True), ("qkv",), FUSED, each),
        *(Op("attn.heads", Copy(), (value,), (value,), each) for value in copied),
        *((seen_by_heads("attn.heads", "v", each, rotated=False),) if copied else ()),
    )


def self_attention(keys: Keys, heads: Heads, hidden: Dims, rotary: int) -> tuple[Op, ...]:
    """Reads `x`, leaves its result in `a`."""
    each, fused = heads.dims(), keys.text("model_type") == CODEGEN
    spec = HighAttention(heads.query, heads.kv, heads.width, dropout=keys.number("attn_pdrop"))
    rope = Rope(rotary, heads.width, interleaved=True, back=fused, join=Join.OWN)
    return (
        *(_fused(keys, hidden, heads) if fused else _projected(hidden, heads)),
        Op("attn.rotary", rope, ("q", "k"), ("q", "k", *APART), each),
        Op("attn.attention", spec, ("q", "k", "v"), ("a",), each),
        Op("attn.out_proj", linear("attn.out_proj", each, hidden), ("a",), ("a",), hidden),
        dropped(
            "attn.resid_dropout", keys.number("resid_pdrop"), "a", hidden,
            ("q", "k", "v", *APART, *(("qkv",) if fused else ())),
        ),
    )  # fmt: skip


def layer(keys: Keys, heads: Heads, hidden: Dims, rotary: int) -> tuple[Op, ...]:
    """One layer."""
    act = keys.choice("activation_function", ACTIVATIONS, ActKind.GELU_NEW)
    width = keys.integer("n_inner", default=WIDENING.count * hidden[0].size)
    return (
        layer_norm("ln_1", hidden, "h", "x"),
        *self_attention(keys, heads, hidden, rotary),
        *plain(MLP, hidden, width, act),
        dropped("mlp.dropout", keys.number("resid_pdrop"), "y", hidden),
        summed("branches", ("a", "y"), "s", hidden),
        summed("residual", ("s", "h"), "h", hidden, ("s", "a", "y", "x")),
    )


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden, heads = width(keys)
    rotary = keys.integer("rotary_dim")
    vocab = Axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.wte", vocab, hidden)
    places = Axis(Dim.POSITIONS, keys.integer("n_positions", "max_position_embeddings"))
    ops = layer(keys, heads, hidden, rotary)
    layers = tuple(range(keys.integer("n_layer", "num_hidden_layers")))
    final = layer_norm("transformer.ln_f", hidden, "h", "h")
    family = keys.text("model_type")
    return Model(
        family=family,
        prologue=embedded("transformer.wte", words, "transformer.drop", keys.number("embd_pdrop")),
        embeddings=(words,),
        blocks=(Block("transformer.h", ops, weights_of(ops), layers),),
        head=language_head((final,), words, "lm_head", keys.flag("tie_word_embeddings"), bias=True),
        hidden=hidden[0],
        vocab=vocab.size,
        rotary=Rotary(rotary, high=family == CODEGEN, looked=True),
        buffers=(Buffer("transformer.rotary_emb.embed_positions", (places, Axis(Dim.ROPE_DIM, rotary)), FP32),),
    )
