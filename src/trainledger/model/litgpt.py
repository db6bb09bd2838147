"""LitGPT's GPT of a plan: one fused layer of queries, keys and values, rotary tables as buffers, LoRA by switches.

Sources: litgpt/{model,config,lora}.py (0.4.13; the saved tensors are those of 2023-10 to 0.5.13). Keys are Hugging
Face's, as plans give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import DTYPES, FP32, INT64, DType
from trainledger.facts.litgpt import FAMILIES, NAME, QUANTISED, SWITCHES, Family
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.facts.model_types_layernorm import WIDENING
from trainledger.model.families import falcon
from trainledger.model.families.gpt_neox import rotary
from trainledger.model.keys import Keys
from trainledger.model.layered import layer_norm, looked_up, summed, table
from trainledger.model.parts import ACTIVATIONS, Heads, axis, linear
from trainledger.model.program import (
    Act,
    ActKind,
    Attention,
    Block,
    Buffer,
    Copy,
    FusedLowRank,
    Handed,
    Head,
    Join,
    Linear,
    LowRank,
    Model,
    Multiply,
    Norm,
    NormKind,
    Op,
    Packing,
    Repeat,
    Role,
    Rope,
    Scale,
    Split,
    View,
    Weight,
)
from trainledger.model.quantised import packing_of
from trainledger.model.self_attention import heads_of, window_of
from trainledger.plan.schema import Plan

QKV = ("query", "key", "value")
TURNED = ("q_roped", "k_roped")


@dataclass(frozen=True, slots=True)
class Lora:
    """LoRA as LitGPT is told: what its switches adapt, with which rank, dtype and chance of dropout."""

    on: frozenset[str]
    rank: int
    dtype: DType
    dropout: float


@dataclass(frozen=True, slots=True)
class Shape:
    """What the layers of a model share: its family, hidden dims, heads, how many elements of one turn, the
    feed-forward's width and activation, LoRA and quantisation (None: without)."""

    family: Family
    hidden: Dims
    heads: Heads
    rotary: int
    inner: Dims
    act: ActKind
    lora: Lora | None
    packing: Packing | None


def model_of(plan: Plan) -> Model:
    """The model that a plan of LitGPT trains. Raises InputError for keys that are missing, impossible or not known."""
    kind = str(plan.keys().get("model_type"))
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise InputError([Problem("model.model_type", f"found {kind!r}", f"LitGPT's {known} can be estimated so far")])
    keys = Keys(plan.keys(), dict(MODEL_TYPES[kind].defaults))
    packing = packing_of(plan)
    shape = _shape(keys, FAMILIES[kind], _lora(plan), replace(packing, loaded=QUANTISED.loaded) if packing else None)
    model = _model(keys, kind, shape, plan.batch.sequence)
    keys.check()
    return model


def _lora(plan: Plan) -> Lora | None:
    given = plan.adapter
    if given is None:
        return None
    names = (given.targets,) if isinstance(given.targets, str) else given.targets or ()
    on = frozenset(one.name for one in SWITCHES if any(name in one.modules for name in names))
    return Lora(on, given.r or 0, DTYPES[given.dtype], given.dropout)


def unknown_targets(names: Sequence[str]) -> list[str]:
    """Targets that none of LitGPT's switches means."""
    return [name for name in names if not any(name in one.modules for one in SWITCHES)]


def _shape(keys: Keys, row: Family, lora: Lora | None, packing: Packing | None) -> Shape:
    is_falcon = "falcon" in row.model_types
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    heads = falcon.heads_of(keys, hidden[0].size) if is_falcon else heads_of(keys, hidden[0].size)
    width = WIDENING.count * hidden[0].size if is_falcon else keys.integer("intermediate_size")
    act = ActKind.GELU if row.scaled or not row.gated else keys.choice("hidden_act", ACTIVATIONS, ActKind.SILU)
    return Shape(row, hidden, heads, rotary(keys, heads), axis(Dim.FFN, width), act, lora, packing)


def _model(keys: Keys, kind: str, s: Shape, sequence: int) -> Model:
    vocab = axis(Dim.VOCAB, keys.integer("vocab_size"))
    words = table("transformer.wte", vocab[0], s.hidden)
    lookup = looked_up("transformer.wte", words, "h")
    scale = Op("transformer.wte scaled", Scale(), ("h",), ("h",), s.hidden)
    final = _norm("transformer.ln_f", s, "h", "h")
    logits = _linear("lm_head", s, (s.hidden, vocab), s.family.head_bias, "head")
    head = Op("lm_head", logits, ("h",), ("logits",), vocab)
    return Model(
        family=NAME,
        prologue=(lookup, scale) if s.family.scaled else (lookup,),
        embeddings=(words,),
        blocks=_blocks(keys, s),
        head=Head((final, head), (*_read(final), *_read(head))),
        hidden=s.hidden[0],
        vocab=vocab[0].size,
        buffers=tuple(_buffers(keys.integer("num_hidden_layers"), s, sequence)),
        handed=Handed(numbered=False),
    )


def _buffers(layers: int, s: Shape, sequence: int) -> Iterator[Buffer]:
    """Rotary tables of as many positions as the longest sample has, and for each layer the adapted columns."""
    for wave in ("cos", "sin"):
        yield Buffer(wave, (Axis(Dim.SEQUENCE, sequence), Axis(Dim.ROPE_DIM, s.rotary)), FP32)
    low = _fused(s)
    if low is not None and low.padded:
        for layer in range(layers):
            yield Buffer(f"transformer.h.{layer}.attn.attn.lora_ind", (Axis(Dim.ROWS, sum(low.widths)),), INT64)


def _blocks(keys: Keys, s: Shape) -> tuple[Block, ...]:
    """Gemma 2's layers look back over a window in turn with those that look at all."""
    window = window_of(keys) if s.family.after else 0
    count = keys.integer("num_hidden_layers")
    said = s.family.parallel
    parallel = keys.flag(said) if isinstance(said, str) else said
    rows = (
        [tuple(range(count))]
        if not window
        else [tuple(range(0, count, len(TURNED))), tuple(range(1, count, len(TURNED)))]
    )
    blocks = []
    for layers, own in zip(rows, (window, 0), strict=False):
        ops = _layer(s, own, parallel)
        weights = dict.fromkeys(weight for op in ops for weight in _read(op))
        blocks.append(Block("transformer.h", ops, tuple(weights), layers))
    return tuple(blocks)


def _read(op: Op) -> tuple[Weight, ...]:
    """A module's parameters in its own order: an adapter's before those of the layer inside."""
    adapter = getattr(op.spec, "adapter", None)
    own = (getattr(op.spec, name, None) for name in ("weight", "bias"))
    return (*(adapter.weights if adapter else ()), *(weight for weight in own if weight is not None))


def _norm(name: str, s: Shape, source: str, out: str) -> Op:
    if s.family.layer_norm:
        return layer_norm(name, s.hidden, source, out)
    kind = NormKind.RMS_SQUARES_ONE_PLUS if s.family.unit else NormKind.RMS_SQUARES
    return Op(name, Norm(kind, Weight(f"{name}.weight", s.hidden, Role.NORM)), (source,), (out,), s.hidden)


def _linear(name: str, s: Shape, sides: tuple[Dims, Dims], bias: bool, switch: str) -> Linear:
    """A LoRALinear: its own layer stands inside it."""
    spec = linear(f"{name}.linear", *sides, bias)
    weight = replace(spec.weight, role=Role.HEAD if switch == "head" else Role.MATRIX, packed=s.packing)
    if s.lora is None or switch not in s.lora.on:
        return replace(spec, weight=weight)
    source, target = (_one(side) for side in sides)
    rank = (Axis(Dim.RANK, s.lora.rank),)
    low = LowRank(
        _factor(f"{name}.lora_A", (*rank, *source), s.lora),
        _factor(f"{name}.lora_B", (*target, *rank), s.lora),
        dropout=s.lora.dropout,
    )
    return replace(spec, weight=weight, adapter=low)


def _factor(name: str, dims: Dims, lora: Lora) -> Weight:
    return Weight(name, dims, dtype=lora.dtype, tuned=True)


def _one(dims: Dims) -> Dims:
    size = 1
    for one in dims:
        size *= one.size
    return dims if len(dims) == 1 else axis(Dim.COLUMNS, size)


def _fused(s: Shape) -> FusedLowRank | None:
    """LoRA of the fused layer, where one of queries, keys and values is adapted."""
    if s.lora is None or not s.lora.on & set(QKV):
        return None
    sizes = dict(zip(QKV, (s.heads.query, s.heads.kv, s.heads.kv), strict=True))
    widths = tuple(sizes[one] * s.heads.width for one in QKV if one in s.lora.on)
    rank = Axis(Dim.RANK, s.lora.rank)
    down = _factor("attn.attn.lora_A", (Axis(Dim.RANK, s.lora.rank * len(widths)), *s.hidden), s.lora)
    up = _factor("attn.attn.lora_B", (Axis(Dim.ROWS, sum(widths)), rank), s.lora)
    return FusedLowRank(down, up, widths, len(widths) < len(QKV), s.lora.dropout)


def _attention(s: Shape, window: int) -> tuple[Op, ...]:
    """Reads `n`, leaves its result in `a`."""
    heads, each, kv = s.heads, s.heads.dims(), s.heads.dims(kv=True)
    lines: Dims = (Axis(Dim.HEADS, heads.query + heads.kv + heads.kv), Axis(Dim.HEAD_DIM, heads.width))
    spec = _linear("attn.attn", s, (s.hidden, lines), s.family.bias, "")
    spec = replace(spec, adapter=_fused(s))
    score = Attention(heads.query, heads.query, heads.width, window=window, softcap=s.family.after, head_first=True)
    grouped = 1 < heads.kv < heads.query
    return (
        Op("attn.attn", spec, ("n",), ("qkv",), lines),
        Op("attn", View(rotated=True), ("qkv",), ("qkv",), lines),
        Op("attn", Split((each, kv, kv), chunk=True), ("qkv",), ("q", "k", "v"), each),
        *((Op("attn", Copy(), ("q",), ("q",), each),) if grouped else ()),
        *(Op("attn", Repeat(heads.query), (one,), (one,), each) for one in ("k", "v")),
        Op("attn.rope", Rope(s.rotary, heads.width, join=Join.CAST), ("q", "k"), ("q", "k", *TURNED), each),
        Op("attn.attention", score, ("q", "k", "v"), ("o",), each),
        Op(
            "attn.proj",
            _linear("attn.proj", s, (each, s.hidden), s.family.bias, "projection"),
            ("o",),
            ("a",),
            s.hidden,
            ("q", "k", "v", "qkv", "o", *TURNED),
        ),
    )


def _feed_forward(s: Shape) -> tuple[Op, ...]:
    """Reads `n`, leaves its result in `m`."""
    bias, wide = s.family.bias, (s.hidden, s.inner)
    down = _linear("mlp.proj", s, (s.inner, s.hidden), bias, "mlp")
    if not s.family.gated:
        return (
            Op("mlp.fc", _linear("mlp.fc", s, wide, bias, "mlp"), ("n",), ("f",), s.inner),
            Op("mlp.act", Act(s.act), ("f",), ("f",), s.inner),
            Op("mlp.proj", down, ("f",), ("m",), s.hidden, ("f",)),
        )
    return (
        Op("mlp.fc_1", _linear("mlp.fc_1", s, wide, bias, "mlp"), ("n",), ("g",), s.inner),
        Op("mlp.fc_2", _linear("mlp.fc_2", s, wide, bias, "mlp"), ("n",), ("u",), s.inner),
        Op("mlp.act", Act(s.act), ("g",), ("w",), s.inner),
        Op("mlp", Multiply(), ("w", "u"), ("f",), s.inner, ("w",)),
        Op("mlp.proj", down, ("f",), ("m",), s.hidden, ("f", "g", "u")),
    )


def _layer(s: Shape, window: int, parallel: bool) -> tuple[Op, ...]:
    after = (_norm("post_attention_norm", s, "a", "a"),) if s.family.after else ()
    last = (_norm("post_mlp_norm", s, "m", "m"),) if s.family.after else ()
    first = (_norm("norm_1", s, "h", "n"), *_attention(s, window), *after)
    second = () if s.family.shared else (_norm("norm_2", s, "h", "n"),)
    if parallel:
        return (
            *first,
            *second,
            *_feed_forward(s),
            *last,
            summed("branches", ("m", "a"), "s", s.hidden, ("m",)),
            summed("residual", ("s", "h"), "h", s.hidden, ("s", "a", "n")),
        )
    return (
        *first,
        summed("attention residual", ("a", "h"), "h", s.hidden),
        *second,
        *_feed_forward(s),
        *last,
        summed("feed-forward residual", ("m", "h"), "h", s.hidden, ("m", "a", "n")),
    )
