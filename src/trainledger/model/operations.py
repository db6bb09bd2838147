"""The kinds of operations a block's program may use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.model.weights import Delta, FusedLowRank, LowRank, Tokens, Weight


class NormKind(StrEnum):
    """How a norm is written: the primitives it runs differ, and so does what autograd keeps."""

    RMS = "rms"  # to fp32, normalise, cast back, times weight
    RMS_METHOD = "rms-method"  # as `rms`, times weight last, by a method that names no variance (Llama 4)
    RMS_ONE_PLUS = "rms-one-plus"  # all in fp32, times (1 + weight) in fp32, then cast back
    RMS_LATE_CAST = "rms-late-cast"  # times weight in fp32, then cast back
    RMS_PLAIN = "rms-plain"  # as `rms`, without a weight
    LAYER = "layer"  # torch.nn.LayerNorm
    LAYER_HIGH = "layer-high"  # torch's own function on the input in fp32, cast back (OLMo)
    LAYER_ONE_PLUS = "layer-one-plus"  # likewise in autocast's low dtype, times (1 + weight) (Nemotron)
    LAYER_MANUAL = "layer-manual"  # mean and variance by hand in fp32 (Cohere)
    RMS_SQUARES = "rms-squares"  # as `rms-late-cast`, the square by x times x, the weight cast to fp32 (LitGPT)
    RMS_SQUARES_ONE_PLUS = "rms-squares-one-plus"  # likewise, times (1 + weight)
    RMS_NATIVE = "rms-native"  # torch.nn.RMSNorm, one kernel in newer releases
    RMS_POWER = "rms-power"  # all in fp32, by pow(-0.5), times the weight in fp32 where there is one (Gemma 4)


class ActKind(StrEnum):
    """An activation function as the framework runs it."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu-tanh"  # one fused kernel
    GELU_NEW = "gelu-new"  # the tanh formula written out in Python
    GELU_BLOOM = "gelu-bloom"  # the same formula in an autograd function of its own, which saves its input alone
    GELU_FAST = "gelu-fast"  # the same formula factored otherwise, written out in Python
    RELU = "relu"
    RELU_SQUARED = "relu-squared"  # two kernels
    TANH = "tanh"
    SIGMOID = "sigmoid"


@dataclass(frozen=True, slots=True)
class Embed:
    """Rows of a table chosen by token, position or type ids. `per_batch` False: one row set shared by the batch.
    `offset`: a number is added to the ids first. `fewer`: tokens of the sequence that no id stands for."""

    weight: Weight
    per_batch: bool = True
    ids: str = "input_ids"
    offset: bool = False
    adapter: LowRank | Tokens | None = None
    fewer: int = 0


@dataclass(frozen=True, slots=True)
class Prompts:
    """`count` trained rows before a sequence's own: from a table, through `layers` (weight and bias) with a function
    between them. Leaves the longer sequence, and the rows under a name of their own."""

    table: Weight
    layers: tuple[tuple[Weight, Weight], ...]
    count: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """Trained keys and values of `count` tokens for each of `copies` layers, all in one row of a table, or made of it
    through `layers` (weight and bias) with a function between them. `heads`: heads and head dim of one layer's keys.
    Nothing of the sequence itself is read."""

    table: Weight
    layers: tuple[tuple[Weight, Weight], ...]
    count: int
    heads: Dims
    copies: int


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation over the last dims (`width` elements). Per head when `dims` end in a head dim."""

    kind: NormKind
    weight: Weight | None
    bias: Weight | None = None


class Scales(StrEnum):
    """How factors in 8 bits are scaled."""

    TENSOR = "tensor"  # one scale for all of a tensor
    ROWS = "rows"
    ROWS_BUT_WEIGHTS = "rows-but-weights"  # by rows, but a weight's gradient is a product of 16 bits
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Low:
    """A product whose factors are cast to 8 or 4 bits: their dtype, their scales; `gathered`: the weight comes cast;
    `again`: it is cast once more in backward, and kept as it is; `early`: the input is kept cast; `kernels`: each cast
    is one kernel in eager mode too; `listed`: policies of selective recompute know the product; `summed`: its result is
    added up over ranks, the gradient of which comes cast, and the input is kept cast."""

    dtype: DType
    scales: Scales
    gathered: bool
    again: bool
    early: bool
    kernels: bool
    listed: bool = True
    summed: bool = False


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T + b. `conv1d`: GPT-2's layout, an addmm over flattened tokens. `flat`: tokens are rows of a matrix
    already, so that the input's gradient is a product and no view of one. `low`: its factors are cast to 8 bits.
    `apart`: written with operators, the bias added by one of its own (Falcon)."""

    weight: Weight
    bias: Weight | None = None
    conv1d: bool = False
    flat: bool = False
    adapter: LowRank | FusedLowRank | Delta | Tokens | None = None
    low: Low | None = None
    apart: bool = False


def sides(spec: Linear | Embed) -> tuple[Axis, Axis]:
    """The input and the output of a layer, each as one dimension."""
    shape = spec.weight.shape
    first, rest = shape[0], spec.weight.elements // shape[0]
    if isinstance(spec, Linear) and not spec.conv1d:
        first, rest = rest, first
    return Axis(Dim.COLUMNS, first), Axis(Dim.ROWS, rest)


@dataclass(frozen=True, slots=True)
class View:
    """Another shape of the same storage (view, transpose); no memory. `rotated`: by heads, before a rotary embedding,
    whose gradient arrives head by head and is copied back to token order. `keys`: of keys that do not turn, whose
    gradient from eager attention is in token order within each sequence. `rows`: batch and sequence as one dim or
    apart again, through which a gradient comes as a view, so that no other can be added to it in place. `straight`: the
    gradient is in token order, whatever attention runs."""

    rotated: bool = False
    keys: bool = False
    rows: bool = False
    straight: bool = False


@dataclass(frozen=True, slots=True)
class Split:
    """Views of parts of the last dim. `chunk`: one node for all parts (torch.chunk, split), else one slice each."""

    parts: tuple[Dims, ...]
    chunk: bool = False


@dataclass(frozen=True, slots=True)
class First:
    """The first token of each sequence (BERT's pooler)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A contiguous copy where the layout needs one (`.contiguous()`, `.reshape` of a transposed view)."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Heads of keys or values repeated to this many: a copy, or a view where there is but one head."""

    heads: int


class Join(StrEnum):
    """When the turned part of a head is concatenated with the part that passes."""

    NONE = "none"  # all of the head turns, nothing is concatenated
    EACH = "each"  # queries before keys are turned (Phi-3)
    LAST = "last"  # both after both are turned (GPT-NeoX, GLM)
    PAIRS = "pairs"  # neighbours turn in fp32 and are stacked again (torchtune)
    CAST = "cast"  # both after both are turned and cast back; the turned parts keep names of their own (LitGPT)
    COMPLEX = "complex"  # neighbours are complex numbers of fp32, times a table of them (torchtitan)
    CACHE = "cache"  # as NONE, by one fp32 table that each layer casts (torchtitan's Qwen3)
    RETURNED = "returned"  # as LAST, and the turned parts keep their names until both are joined (Nemotron)
    OWN = "own"  # keys before queries, each by neighbours and by tables that it spreads itself; as APART (GPT-J)
    APART = "apart"  # as LAST, and the turned and the passing parts keep names of their own: four more results (Phi)


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding of q and k, or of one of them. `rotary` of `head` elements turn; `interleaved`: pairs of
    neighbours (Cohere, GLM); `upcast`: q and k are cast to fp32 before (Cohere); `back`: the result is cast to the
    dtype before (Cohere, OLMo 2); `spread`: each layer repeats the tables' entries for its pairs (GLM); `late`: q and
    k, and their turned halves, are cast to fp32 each where they are multiplied (Ernie); `twice`: q and k are, for each
    product anew (ModernBERT); `tables`: which set of cosines and sines (`local`; empty: the only or global one)."""

    rotary: int
    head: int
    interleaved: bool = False
    upcast: bool = False
    back: bool = False
    spread: bool = False
    late: bool = False
    twice: bool = False
    join: Join = Join.NONE
    tables: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """Scores, softmax and values. `window`: sliding window length; `softcap`: tanh on the scores (eager only).

    `head_first`: q and k lie head by head in memory, as after a concatenation, else token by token. `value`: head dim
    of the values (0: that of queries and keys).
    Of eager attention alone: `upcast`: the softmax is asked for in fp32; `back`: its result is cast to
    the queries' dtype, or to the values' when not asked for in fp32.
    """

    heads: int
    kv_heads: int
    head: int
    causal: bool = True
    dropout: float = 0.0
    window: int = 0
    softcap: bool = False
    upcast: bool = True
    back: bool = True
    head_first: bool = False
    value: int = 0

    @property
    def mask_name(self) -> str:
        """The name under which the model's forward keeps this attention's mask, where there is one."""
        return "mask_sliding" if self.window else "mask"


@dataclass(frozen=True, slots=True)
class ChunkAttention(Attention):
    """Attention whose tokens see their own chunk alone, of `window` tokens (0: all that came before)."""

    @property
    def mask_name(self) -> str:
        """As that of all attention."""
        return "mask_chunked" if self.window else "mask"


@dataclass(frozen=True, slots=True)
class Act:
    """An elementwise activation function."""

    kind: ActKind


@dataclass(frozen=True, slots=True)
class Multiply:
    """Elementwise product of two tensors. `act`: one kernel runs this function on the first and multiplies."""

    act: ActKind | None = None


@dataclass(frozen=True, slots=True)
class Tiled:
    """down(act(gate(x)) * up(x)) of one tile of so many tokens after the other; backward runs each tile once more."""

    gate: Linear
    up: Linear
    down: Linear
    act: ActKind
    tokens: int


@dataclass(frozen=True, slots=True)
class Add:
    """Elementwise sum (the residual connection). `inplace`: `x += y`."""

    inplace: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Times a Python number (Granite's multipliers) or, where `tensor`, a 0-dim tensor (Gemma's embedding scale);
    `inplace`: `x *= y` (Gemma 4's layers)."""

    tensor: bool = False
    inplace: bool = False


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout with probability `p`; nothing runs at p = 0."""

    p: float
