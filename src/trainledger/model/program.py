"""A model as data: weights, operations, blocks.

A block is a small program. Its operations read and write names, as the framework's own Python does: a name
holds its tensor until it is bound again or dropped. What autograd keeps of an operation is not said here; that is
a rule of the operation, by stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from trainledger.base.dims import Axis, Dims
from trainledger.model.operations import (
    Act,
    ActKind,
    Add,
    Attention,
    ChunkAttention,
    Copy,
    Dropout,
    Embed,
    First,
    Join,
    Linear,
    Low,
    Multiply,
    Norm,
    NormKind,
    Prefix,
    Prompts,
    Repeat,
    Rope,
    Scale,
    Scales,
    Split,
    Tiled,
    View,
    sides,
)
from trainledger.model.operations_curve import TrainedCurve
from trainledger.model.operations_every import EveryExpert, Noise, SigmoidRouter, SummedExperts, Tempered
from trainledger.model.operations_experts import KEPT, Experts, Looped, LowRouter, Router
from trainledger.model.operations_latent import Concat, FilledKeys, GroupRouter, Pairs, Turn
from trainledger.model.operations_linear import CausalConv, DeltaRule, GatedNorm, Mixed, Transposed
from trainledger.model.operations_megatron import MegatronSpec
from trainledger.model.operations_megatron_moe import MoeSpec
from trainledger.model.operations_parallel import Collective
from trainledger.model.operations_scaled import ScaledBest, Stored, Weighted
from trainledger.model.operations_sinks import BestRouter, ClampedExperts, SinkAttention
from trainledger.model.operations_written import Alibi, HighAttention, Taken, Written, WrittenAttention
from trainledger.model.weights import Buffer, Delta, Fold, FusedLowRank, LowRank, Packing, Role, Tokens, Weight

__all__ = [
    "KEPT",
    "Act",
    "ActKind",
    "Add",
    "Alibi",
    "Attention",
    "BestRouter",
    "Block",
    "Buffer",
    "ChunkAttention",
    "ClampedExperts",
    "Concat",
    "Copy",
    "Delta",
    "Dropout",
    "Embed",
    "EveryExpert",
    "Experts",
    "FilledKeys",
    "First",
    "Fold",
    "FusedLowRank",
    "GroupRouter",
    "Head",
    "HighAttention",
    "Join",
    "Linear",
    "Looped",
    "Low",
    "LowRank",
    "LowRouter",
    "Model",
    "Multiply",
    "Noise",
    "Norm",
    "NormKind",
    "Op",
    "Packing",
    "Pairs",
    "Repeat",
    "Role",
    "Rope",
    "Rotary",
    "Router",
    "Prefix",
    "Prompts",
    "Scale",
    "ScaledBest",
    "Scales",
    "SigmoidRouter",
    "SinkAttention",
    "Spec",
    "Split",
    "Stored",
    "SummedExperts",
    "Taken",
    "Tempered",
    "Tiled",
    "Tokens",
    "TrainedCurve",
    "Turn",
    "View",
    "Weight",
    "Weighted",
    "Written",
    "WrittenAttention",
    "sides",
]


Spec: TypeAlias = (
    Embed
    | Prompts
    | Prefix
    | Norm
    | Linear
    | View
    | Split
    | Taken
    | First
    | Copy
    | Repeat
    | Rope
    | Attention
    | Act
    | TrainedCurve
    | Multiply
    | Tiled
    | Add
    | Scale
    | Dropout
    | Router
    | GroupRouter
    | BestRouter
    | LowRouter
    | ClampedExperts
    | Pairs
    | Concat
    | FilledKeys
    | Experts
    | Looped
    | Noise
    | Tempered
    | SigmoidRouter
    | EveryExpert
    | SummedExperts
    | Weighted
    | ScaledBest
    | Stored
    | Mixed
    | Transposed
    | CausalConv
    | DeltaRule
    | GatedNorm
    | MegatronSpec
    | MoeSpec
    | Collective
)


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a block: what it is, the names it reads and writes, its result's dims per token.

    `name` is the module's path within the block. `outs` are bound after it ran; `drop` names end after it. `asked`: its
    first result is made to need a gradient, whatever it was made from. `folds`: parameters that are adapted before it
    reads them, the outermost wrapper first.
    """

    name: str
    spec: Spec
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    dims: Dims
    drop: tuple[str, ...] = ()
    asked: bool = False
    folds: tuple[Fold, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Equal layers, walked once and counted. `weights` also lists those no operation here reads.

    `top_k`: how many of its routed experts a token takes (0: none are routed). `unknown`: why `ops` is empty though
    the layer runs some, for those who would walk it; empty where the operations are known.
    """

    name: str
    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    layers: tuple[int, ...] = (0,)
    top_k: int = 0
    unknown: str = ""

    @property
    def count(self) -> int:
        """How many equal layers this block stands for."""
        return len(self.layers)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Tables of cosines and sines made once a forward: rotary dims, and how many sets (local and global); `own`: dims
    of sets that have other ones.

    `high`: they stay fp32 instead of being cast to the hidden state's dtype (OLMo 2). `compound`: one table of complex
    numbers of unit length instead (DeepSeek V2). `half`: an entry for each pair alone (gpt-oss). `each`: one set for
    every sequence of the batch, of positions that are counted in three ways (Qwen3.5). `looked`: one table of both,
    rows of a buffer (GPT-J).
    """

    dim: int
    sets: tuple[str, ...] = ("",)
    high: bool = False
    compound: bool = False
    half: bool = False
    own: tuple[tuple[str, int], ...] = ()
    each: bool = False
    looked: bool = False

    def width(self, name: str) -> int:
        """The rotary dims of a set."""
        return dict(self.own).get(name, self.dim)


@dataclass(frozen=True, slots=True)
class Head:
    """What follows the blocks: operations from the last hidden state `h` to `logits`.

    `pooled`: one row of logits for each sequence, not for each token. `raised`: a loss of masked words casts logits to
    fp32, as that of next words does (ModernBERT).
    """

    ops: tuple[Op, ...]
    weights: tuple[Weight, ...]
    softcap: bool = False
    pooled: bool = False
    raised: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """How a layer is called: names passed by position (all others are by keyword), whether the numbers of positions are
    passed, too, whether the model's forward makes them at all, and the masks that it makes for attention written out in
    Python whether or not a layer reads them. A reentrant checkpoint saves what comes by position,
    and its node keeps what comes by keyword. `alibi`: biases by distance that the forward makes. `rebound`: the forward
    binds the name of the first layer's input to what each layer returns, and names the embedding's rows otherwise."""

    by_position: tuple[str, ...] = ()
    positions: bool = True
    numbered: bool = True
    masks: tuple[str, ...] = ()
    alibi: Alibi | None = None
    rebound: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """What is trained: the prologue (ids to hidden state), blocks in order of their first layer, the head.

    `vocab` is the width of the logits. `buffers` are device tensors that are not parameters. `further`: layers that
    predict further tokens, not in `blocks`: those without operations are kept in a published checkpoint but made by
    no class of the framework.
    """

    family: str
    prologue: tuple[Op, ...]
    embeddings: tuple[Weight, ...]
    blocks: tuple[Block, ...]
    head: Head
    hidden: Axis
    vocab: int
    rotary: Rotary | None = None
    buffers: tuple[Buffer, ...] = ()
    causal: bool = True
    further: tuple[Block, ...] = ()
    handed: Handed = Handed()
