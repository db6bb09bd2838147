"""Quantised layers: the tensors that a weight is stored as, and how its layer's product is made, by kind and release.

Tensors are counted as the libraries make them, one allocation each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.dtypes import FP8, FP16, FP32, INT8, INT32, UINT8, DType
from trainledger.facts.versions import at_least


class Per(StrEnum):
    """What a stored tensor has an entry for; `size` is the width it counts in."""

    WORD = "the bits of all elements, in whole words"
    BLOCK = "every `size` elements"
    NESTED = "every `size` scales of blocks"
    GROUP = "every group of inputs, of every output"
    GROUP_WORD = "the bits of every group of inputs, of every output, in whole words"
    TILE = "every square of `size` inputs and outputs"
    INPUT = "every input"
    OUTPUT = "every output"
    FIXED = "`size` in all"


class When(StrEnum):
    """Whether a tensor is there with doubly quantised scales, without, or in both cases."""

    ALWAYS = ""
    DOUBLE = "double"
    SINGLE = "single"


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a quantised weight. `since`: the first release read in which each weight has its own."""

    name: str
    dtype: DType
    per: Per
    size: int
    source: Source
    when: When = When.ALWAYS
    since: str = ""


class Product(StrEnum):
    """How a quantised layer makes its product."""

    DEQUANTISE = "the weight in 16 bits is made, used and freed, forward and backward; no input is kept"
    KEEP_INPUT = "as dequantise, but the input is kept, and backward copies the weight for every sequence"
    INT8 = "the input is quantised row by row, the product is made in int32; the input stays with the graph"
    FP8 = "the input is quantised in blocks; backward makes the weight in 16 bits; no input is kept"


@dataclass(frozen=True, slots=True)
class QuantKind:
    """A kind of quantisation: its tensors in the order in which they are made, its product, the package that runs it,
    and the dtype that its product is made in (None: the run's compute dtype)."""

    name: str
    bits: int
    parts: tuple[Part, ...]
    product: Product
    package: str
    source: Source
    reads: DType | None = None
    buffers: bool = False

    def tensors(self, double: bool, release: str) -> tuple[Part, ...]:
        """The tensors of one weight."""
        left_out = When.SINGLE if double else When.DOUBLE
        return tuple(one for one in self.parts if one.when is not left_out and at_least(release or None, one.since))


BNB = Source(
    "bitsandbytes 4-bit layers", "bitsandbytes/nn/modules.py, functional.py, autograd/_functions.py", "0.41.1 to 0.50.2"
)
BNB_8 = Source(
    "bitsandbytes LLM.int8() layers", "bitsandbytes/nn/modules.py, autograd/_functions.py", "0.41.1 to 0.50.2"
)
GPTQ = Source("AutoGPTQ", "auto_gptq/nn_modules/qlinear/*.py", "0.7.1")
AWQ = Source("AutoAWQ", "awq/modules/linear/gemm.py", "0.2.7.post3")
FINE_FP8 = Source("Transformers fine-grained FP8", "transformers/integrations/finegrained_fp8.py", "5.24.0")


@dataclass(frozen=True, slots=True)
class FourBit:
    """bitsandbytes' 4-bit layers. `direct`: since this release the weight is dequantised in the input's dtype at once;
    before, in the dtype that was quantised, and then cast. `lets_go`: since this one the graph's node names the packed
    weight alone; before, the input too. `casts_biases`: since this one a layer casts its bias for good, not anew for
    each product."""

    package: str
    direct: str
    lets_go: str
    casts_biases: str
    source: Source


BNB_4 = FourBit("bitsandbytes", "0.50", "0.43.2", "0.50", BNB)


@dataclass(frozen=True, slots=True)
class SharedCode:
    """Entries of the table of the scales' codes that bitsandbytes makes once for the process."""

    entries: int
    source: Source


SHARED_CODE = SharedCode(256, BNB)


@dataclass(frozen=True, slots=True)
class Int8Layer:
    """LLM.int8() layers: since this release only the weight's own layout and only the input's rows are quantised."""

    since: str
    source: Source


BNB_INT8 = Int8Layer("0.45", BNB_8)


@dataclass(frozen=True, slots=True)
class Fp8Rows:
    """Inputs per scale of a row's codes."""

    block: int
    source: Source


FP8_ROWS = Fp8Rows(128, FINE_FP8)


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """Since this release of Transformers experts are stacked parameters, which are not quantised; before, each matrix
    of an expert is a linear layer."""

    since: str
    source: Source


STACKED_EXPERTS = StackedExperts(
    "5.0", Source("Transformers experts", "transformers/integrations/moe.py; quantizers/base.py", "4.48.1, 5.24.0")
)


def _four_bit(name: str) -> QuantKind:
    parts = (
        Part("packed", UINT8, Per.WORD, 0, BNB),
        Part("absmax", FP32, Per.BLOCK, 64, BNB, When.SINGLE),
        Part("code", FP32, Per.FIXED, 16, BNB),
        Part("offset", FP32, Per.FIXED, 1, BNB, When.DOUBLE),
        Part("absmax of scales", FP32, Per.NESTED, 256, BNB, When.DOUBLE),
        Part("quantised absmax", UINT8, Per.BLOCK, 64, BNB, When.DOUBLE),
        Part("code of scales", FP32, Per.FIXED, 256, BNB, When.DOUBLE, "0.46"),
    )
    return QuantKind(name, 4, parts, Product.DEQUANTISE, "bitsandbytes", BNB)


def _gptq(name: str, bits: int) -> QuantKind:
    parts = (
        Part("qweight", INT32, Per.WORD, 0, GPTQ),
        Part("qzeros", INT32, Per.GROUP_WORD, 0, GPTQ),
        Part("scales", FP16, Per.GROUP, 0, GPTQ),
        Part("g_idx", INT32, Per.INPUT, 0, GPTQ),
    )
    return QuantKind(name, bits, parts, Product.DEQUANTISE, "auto-gptq", GPTQ, FP16, True)


_AWQ = (
    Part("qweight", INT32, Per.WORD, 0, AWQ),
    Part("qzeros", INT32, Per.GROUP_WORD, 0, AWQ),
    Part("scales", FP16, Per.GROUP, 0, AWQ),
)
_INT8 = (Part("CB", INT8, Per.WORD, 0, BNB_8), Part("SCB", FP32, Per.OUTPUT, 0, BNB_8))
_FP8 = (Part("weight", FP8, Per.WORD, 0, FINE_FP8), Part("weight_scale_inv", FP32, Per.TILE, 128, FINE_FP8))

QUANT_KINDS: dict[str, QuantKind] = {
    row.name: row
    for row in (
        _four_bit("nf4"),
        _four_bit("fp4"),
        QuantKind("int8", 8, _INT8, Product.INT8, "bitsandbytes", BNB_8, FP16),
        _gptq("gptq4", 4),
        _gptq("gptq8", 8),
        QuantKind("awq4", 4, _AWQ, Product.KEEP_INPUT, "autoawq", AWQ, FP16, True),
        QuantKind("fp8", 8, _FP8, Product.FP8, "transformers", FINE_FP8),
    )
}


@dataclass(frozen=True, slots=True)
class Flattened:
    """Tensors of quantised layers that FSDP1 joins in flat parameters: bitsandbytes' packed weight is a parameter by
    itself; fms-acceleration makes parameters of these buffers (`names`); every rank holds the rest whole."""

    names: tuple[str, ...]
    source: Source


FLATTENED = Flattened(
    ("qweight", "qzeros"),
    Source("fms-acceleration AutoGPTQ and FSDP", "fms_acceleration_peft/autogptq_utils.py, FSDP's patch", "0.4.4"),
)
CODES_BESIDE = Source(
    "bitsandbytes LLM.int8(), codes that a layer holds beside its parameter",
    "bitsandbytes/nn/modules.py, Linear8bitLt.init_8bit_state; torch/distributed/fsdp/_flat_param.py",
    "0.41.1 to 0.50.2",
)


@dataclass(frozen=True, slots=True)
class Patch:
    """A package under which FSDP2's parameters keep their class, so that a layer reads its codes out of what was
    gathered."""

    package: str
    source: Source


INT8_FSDP2 = Patch(
    "axolotl",
    Source("Axolotl, FSDP2 of parameters in 8 bits", "axolotl/monkeypatch/fsdp2_qlora.py, Int8Params", "0.18.0"),
)


@dataclass(frozen=True, slots=True)
class KbitCache:
    """Since this release `prepare_model_for_kbit_training` empties the cache once it has cast parameters."""

    since: str
    source: Source


KBIT_CACHE = KbitCache(
    "0.20.0",
    Source("PEFT k-bit preparation", "peft/utils/other.py, prepare_model_for_kbit_training", "0.19.1, 0.20.0, 0.21.2"),
)


def empties_cache(release: str) -> bool:
    """Whether k-bit preparation of this release empties the cache; an unknown release counts as the newest."""
    return at_least(release or None, KBIT_CACHE.since)


@dataclass(frozen=True, slots=True)
class MadeIn:
    """Since this release PEFT makes the adapters of bitsandbytes' 4-bit layers in the dtype of the layer's products;
    before, and on layers of other integers, in fp32."""

    since: str
    source: Source


MADE_IN = MadeIn(
    "0.19.0",
    Source(
        "PEFT adapters, where made", "peft/tuners/tuners_utils.py, _get_base_layer_device_and_dtype", "0.18.1, 0.19.0"
    ),
)


def made_in(kind: QuantKind, compute: DType, release: str) -> DType:
    """The dtype in which adapters of such a layer are made; one of integers means their own."""
    own = kind.product is Product.DEQUANTISE and kind.package == BNB_4.package
    return compute if own and at_least(release or None, MADE_IN.since) else kind.parts[0].dtype
