"""What decoders near Llama share: self-attention and its variants, gated feed-forwards, and what stands around blocks.

Sources: transformers/models/{llama,qwen3,gemma3,olmo2,cohere,phi3}/modeling_*.py (5.24.0).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.model.keys import Keys
from trainledger.model.parts import ACTIVATIONS, axis, gated, linear, norm, residual
from trainledger.model.program import (
    Act,
    ActKind,
    Add,
    Block,
    Buffer,
    Dropout,
    Embed,
    Handed,
    Head,
    Linear,
    Looped,
    Model,
    Multiply,
    NormKind,
    Op,
    Role,
    Rotary,
    Scale,
    Split,
    Weight,
)

SLIDING, FULL = "sliding_attention", "full_attention"
BOTH_MASKS = ("mask", "mask_sliding")
Kind = TypeVar("Kind", bound=Hashable)


def layer_kinds(keys: Keys, layers: int, sliding: Callable[[int], bool]) -> list[str]:
    """Each layer's kind of attention: `layer_types`, or by default what `sliding` says of its number."""
    given = keys.nullable("layer_types")
    if given is None:
        return [SLIDING if sliding(at) else FULL for at in range(layers)]
    kinds = list(given) if isinstance(given, list | tuple) else []
    if len(kinds) != layers or any(kind not in (SLIDING, FULL) for kind in kinds):
        keys.refuse("layer_types", given, f"{layers} of {SLIDING!r} or {FULL!r} are needed, one for each layer")
        return [FULL for _ in range(layers)]
    return kinds


def every_but(period: int) -> Callable[[int], bool]:
    """True for a layer's number but in each period's last (the full layers among sliding ones)."""
    return lambda at: bool((at + 1) % max(period, 1))


def fused_gated(prefix: str, hidden: Dims, width: int, act: ActKind) -> tuple[Op, ...]:
    """down(up * act(gate)) with gate and up in one projection: reads `x`, leaves its result in `x` (Phi3MLP)."""
    both, inner = axis(Dim.FFN, width + width), axis(Dim.FFN, width)
    gate_up = linear(f"{prefix}.gate_up_proj", hidden, both)
    down = linear(f"{prefix}.down_proj", inner, hidden)
    return (
        Op(f"{prefix}.gate_up_proj", gate_up, ("x",), ("up",), both),
        Op(prefix, Split((inner, inner), chunk=True), ("up",), ("gate", "up"), inner),
        Op(f"{prefix}.activation_fn", Act(act), ("gate",), ("act",), inner),
        Op(prefix, Multiply(), ("up", "act"), ("up",), inner, ("act",)),
        Op(f"{prefix}.down_proj", down, ("up",), ("x",), hidden, ("up", "gate")),
    )


def act_of(keys: Keys) -> ActKind:
    """The feed-forward's activation function."""
    return keys.choice("hidden_act", ACTIVATIONS, ActKind.SILU)


def feed_forward(keys: Keys, hidden: Dims, act: ActKind, bias: bool = False) -> tuple[Op, ...]:
    """The gated feed-forward of these keys: reads `x`, leaves its result in `x`."""
    return gated("mlp", hidden, keys.integer("intermediate_size"), act, bias)


def plain_feed_forward(keys: Keys, hidden: Dims, act: ActKind, bias: bool = False) -> tuple[Op, ...]:
    """down(act(up(x))), without a gate: reads `x`, leaves its result in `x`."""
    inner = axis(Dim.FFN, keys.integer("intermediate_size"))
    up, down = linear("mlp.up_proj", hidden, inner, bias), linear("mlp.down_proj", inner, hidden, bias)
    return (
        Op("mlp.up_proj", up, ("x",), ("up",), inner),
        Op("mlp.act_fn", Act(act), ("up",), ("act",), inner, ("up",)),
        Op("mlp.down_proj", down, ("act",), ("x",), hidden, ("act",)),
    )


def reading(ops: tuple[Op, ...], source: str) -> tuple[Op, ...]:
    """The same operations with another name for their input `x`."""
    return tuple(replace(op, ins=tuple(source if name == "x" else name for name in op.ins)) for op in ops)


def leaving(ops: tuple[Op, ...], out: str) -> tuple[Op, ...]:
    """The same operations with the last result under another name."""
    return (*ops[:-1], replace(ops[-1], outs=(out,)))


def normed(name: str, hidden: Dims, kind: NormKind, source: str = "h") -> Op:
    """A norm of the layer: `source` (`h`, or `x` for the branch's own result) to `x`."""
    return Op(name, norm(name, hidden, kind), (source,), ("x",), hidden)


def joined(name: str, hidden: Dims, spec: Scale | Dropout | None = None) -> tuple[Op, ...]:
    """h = h + x, or h + spec(x): the branch's own result lives until the sum is made."""
    if spec is None:
        return (residual(name, hidden),)
    return (
        Op(name, spec, ("x",), ("y",), hidden),
        Op(name, Add(), ("h", "y"), ("h",), hidden, ("x", "y")),
    )


def pre_norm(
    hidden: Dims, attention: tuple[Op, ...], mlp: tuple[Op, ...], spec: Scale | Dropout | None = None
) -> tuple[Op, ...]:
    """A layer that normalises each branch's input (LlamaDecoderLayer); `spec` changes each branch's result."""
    return (
        normed("input_layernorm", hidden, NormKind.RMS),
        *attention,
        *joined("attention residual", hidden, spec),
        normed("post_attention_layernorm", hidden, NormKind.RMS),
        *mlp,
        *joined("feed-forward residual", hidden, spec),
    )


def grouped(
    kinds: Sequence[Kind], ops: Callable[[Kind], tuple[Op, ...]], name: str = "model.layers"
) -> tuple[Block, ...]:
    """Equal layers together, in order of their first: one block for each kind."""
    layers: dict[Kind, list[int]] = {}
    for at, kind in enumerate(kinds):
        layers.setdefault(kind, []).append(at)
    made = {kind: ops(kind) for kind in layers}
    return tuple(Block(name, made[kind], weights_of(made[kind]), tuple(at)) for kind, at in layers.items())


@dataclass(frozen=True, slots=True)
class Trunk:
    """What stands around the blocks: the last norm, what follows the embedding lookup (`h`) and the head (`logits`),
    buffers, masks that the forward makes in any case, the last norm's name, and keys that tie the head."""

    norm: NormKind = NormKind.RMS
    embedded: tuple[Op, ...] = ()
    headed: tuple[Op, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    masks: tuple[str, ...] = ()
    final: str = "model.norm"
    tied: tuple[str, ...] = ("tie_word_embeddings",)


def decoder(keys: Keys, family: str, blocks: tuple[Block, ...], rotary: Rotary, trunk: Trunk) -> Model:
    """Blocks between a token embedding and a norm with a head."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    vocab = keys.integer("vocab_size")
    table = Weight("model.embed_tokens.weight", (Axis(Dim.VOCAB, vocab), *hidden), Role.EMBEDDING)
    tied = keys.flag(*trunk.tied)
    out = Weight("lm_head.weight", table.dims, Role.HEAD, tied=tied)
    final = norm(trunk.final, hidden, trunk.norm)
    logits = Op("lm_head", Linear(table if tied else out), ("h",), ("logits",), axis(Dim.VOCAB, vocab))
    head = Head(
        (Op(trunk.final, final, ("h",), ("h",), hidden), logits, *trunk.headed),
        tuple(weight for weight in (final.weight, None if tied else out) if weight is not None),
    )
    lookup = Op("model.embed_tokens", Embed(table), ("input_ids",), ("h",), hidden)
    return Model(
        family=family,
        prologue=(lookup, *trunk.embedded),
        embeddings=(table,),
        blocks=blocks,
        head=head,
        hidden=hidden[0],
        vocab=vocab,
        rotary=rotary,
        buffers=trunk.buffers,
        handed=Handed(masks=trunk.masks),
    )


def weights_of(ops: tuple[Op, ...]) -> tuple[Weight, ...]:
    """Every weight that these operations read, in order."""
    found: dict[Weight, None] = {}
    for op in ops:
        for name in (
            "weight",
            "bias",
            "gate_up",
            "gate_up_bias",
            "down",
            "down_bias",
            "up",
            "router",
            "sinks",
            "scales",
            "positive",
            "negative",
        ):
            weight = getattr(op.spec, name, None)
            if isinstance(weight, Weight):
                found[weight] = None
        if isinstance(op.spec, Looped):
            found |= dict.fromkeys(op.spec.weights)
    return tuple(found)
