"""Which attention kernel runs: the order in which PyTorch tries them, and what each one takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source


class Kernel(StrEnum):
    """How scores, softmax and values are computed."""

    EAGER = "eager"  # written out in Python by the framework
    FLASH = "flash"  # PyTorch's own flash kernel
    EFFICIENT = "efficient"  # PyTorch's memory-efficient kernel
    CUDNN = "cudnn"
    MATH = "math"  # PyTorch's composite of products and a softmax
    PACKAGE = "flash-attn"  # the flash-attn package
    FLEX = "flex"  # a compiled flex_attention


SDP_UTILS = "PyTorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"
TRIES = (Kernel.FLASH, Kernel.EFFICIENT, Kernel.MATH)
CUDNN_FIRST = (Kernel.CUDNN, *TRIES)


@dataclass(frozen=True, slots=True)
class Order:
    """Kernels in the order in which they are tried, by torch releases `since` (and before `until`) on these
    architectures (none: all), unless the environment sets cuDNN back (`preference` rows only)."""

    since: str
    until: str
    architectures: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    preference: bool
    source: Source


# The first row that holds counts.
ORDERS = (
    Order(
        "2.11", "", ("sm90", "sm100", "sm103"), CUDNN_FIRST, True,
        Source(SDP_UTILS, "priority_order: cuDNN > 9.15.0 on compute capability 9.x and 10.x", "v2.13"),
    ),
    Order(
        "2.9", "2.10", ("sm90", "sm100"), CUDNN_FIRST, True,
        Source(SDP_UTILS, "priority_order: compiled with cuDNN >= 9.9; pull request 162073", "v2.9"),
    ),
    Order(
        "2.5.0", "2.5.1", ("sm90",), CUDNN_FIRST, True,
        Source(SDP_UTILS, "priority_order; pull requests 125343 and 138522 (set back)", "v2.5.0"),
    ),
    Order("", "", (), TRIES, False, Source(SDP_UTILS, "priority_order", "v2.4 to v2.13")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Takes:
    """What a fused kernel takes. Architectures by number (80 is sm80); head dims in elements.

    `oldest`: architecture. `wide`, `bf16`: from which architecture on fp32 and bf16 run (0: never). `largest`: head dim
    (0: any). `multiple`: of which the head dim must be (1: it is padded). `mask`: takes one. `grouped`: the first
    release that takes fewer key than query heads. `dropout_unit`: one over it divides the dropout (0: any). `equal`:
    values must have the head dim of queries and keys.
    """

    kernel: Kernel
    oldest: int
    wide: int
    bf16: int
    largest: int
    multiple: int
    wide_multiple: int
    mask: bool
    grouped: str
    dropout_unit: int
    equal: bool
    source: Source


TAKES = {
    row.kernel: row
    for row in (
        Takes(
            Kernel.FLASH, 80, 0, 80, 256, 1, 0, False, "2.5", 0, True,
            Source(SDP_UTILS, "can_use_flash_attention", "v2.4 to v2.13"),
        ),
        Takes(
            Kernel.EFFICIENT, 50, 50, 80, 0, 8, 4, True, "2.14", 0, False,
            Source(SDP_UTILS, "can_use_mem_efficient_attention; grouped heads: pull request 191085", "v2.4 to v2.14"),
        ),
        Takes(
            Kernel.CUDNN, 80, 0, 80, 128, 8, 0, True, "2.5", 16, False,
            Source(SDP_UTILS, "can_use_cudnn_attention", "v2.13"),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeadRule:
    """Where a kernel's head dim is judged otherwise: head dims above `over` and up to `to` (elements), from a release
    on, on these architectures. `takes`: allowed; otherwise refused when a gradient is needed. `value`: head dim of
    values (0: that of queries and keys)."""

    kernel: Kernel
    since: str
    architectures: tuple[str, ...]
    over: int
    to: int
    takes: bool
    value: int
    source: Source


HEADS = (
    HeadRule(
        Kernel.FLASH, "", ("sm86", "sm89", "sm120", "sm121"), 192, 224, False, 0,
        Source(SDP_UTILS, "check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120", "v2.13"),
    ),
    HeadRule(
        Kernel.CUDNN, "2.14", ("sm90", "sm100", "sm103"), 255, 256, True, 0,
        Source(SDP_UTILS, "check_cudnn_tensor_shapes: cuDNN > 9.22.0", "v2.14"),
    ),
    HeadRule(
        Kernel.CUDNN, "2.14", ("sm90", "sm100", "sm103"), 191, 192, True, 128,
        Source(SDP_UTILS, "check_cudnn_tensor_shapes, check_cudnn_d256_bprop_head_dim", "v2.14"),
    ),
    HeadRule(
        Kernel.CUDNN, "2.11", ("sm100", "sm103"), 191, 192, True, 128,
        Source(SDP_UTILS, "check_cudnn_tensor_shapes: cuDNN >= 9.11; pull request 172621", "2026-01"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OldEfficient:
    """The memory-efficient kernel before `tensor_cores`: head dims of fp32, and of 16 bits before `half`, are free."""

    tensor_cores: int
    half: int
    source: Source


OLD_EFFICIENT = OldEfficient(
    80, 70, Source("PyTorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp", "minimum_gemm_alignment", "v2.4")
)


@dataclass(frozen=True, slots=True)
class Grouping:
    """When Transformers hands grouped key and value heads to PyTorch as they are: from both releases on, without a
    mask, and from release `limited` on up to head dim `largest`. Else it repeats them first."""

    torch: str
    transformers: str
    limited: str
    largest: int
    source: Source


GROUPING = Grouping(
    "2.5", "4.54", "5.13", 256,
    Source("transformers/integrations/sdpa_attention.py", "use_gqa_in_sdpa; pull requests 39412 and 46960", "5.24.0"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PackedMask:
    """Releases of Transformers that, from a release of PyTorch on, make a mask of rows packed by their positions in any
    case where a batch has no mask of its own and no cache is made: PyTorch's own call is then given it."""

    torch: str
    since: str
    until: str
    source: Source


PACKED_MASK = PackedMask(
    "2.6", "4.53", "5.0",
    Source(
        "transformers/masking_utils.py",
        "find_packed_sequence_indices, _preprocess_mask_arguments, create_causal_mask",
        "4.53.3 to 4.57.3; without it 4.52.4, 5.0.0",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DenseCall:
    """Releases of Transformers that copy queries, keys and values head by head before PyTorch's own call, and model
    types whose own class makes that call without it, until the release named (None: in all of these)."""

    since: str
    until: str
    apart: Mapping[str, str | None]
    source: Source


DENSE_CALL = DenseCall(
    "4.48", "4.56",
    {"gpt_neox": "4.49", "opt": "4.52", "gpt_bigcode": "4.54"}
    | dict.fromkeys(("qwen2_moe", "olmoe", "bert", "roberta", "distilbert", "xlm-roberta", "camembert",
                      "falcon")),
    Source(
        "transformers/integrations/sdpa_attention.py",
        "sdpa_attention_forward; models/*/modeling_*.py",
        "4.48.3 to 4.55.4; without it 4.56.2",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OwnCall:
    """Model types whose own class calls PyTorch's function with fewer key than query heads as they are, and no word of
    it: of the kernels only the composite takes that."""

    families: frozenset[str]
    source: Source


OWN_CALL = OwnCall(
    frozenset(("falcon",)),
    Source("transformers/models/falcon/modeling_falcon.py", "FalconAttention.forward", "4.45.2 to 5.24.0"),
)


@dataclass(frozen=True, slots=True)
class FlashRepeats:
    """Model types whose own flash class repeats key and value heads before the package's kernel, and the release of
    Transformers from which it does not. Others hand them over as they are."""

    until: Mapping[str, str]
    source: Source


FLASH_REPEATS = FlashRepeats(
    dict.fromkeys(("mistral", "mixtral", "qwen2", "phi3", "starcoder2"), "4.48") | {"qwen2_moe": "4.49"},
    Source(
        "transformers/models/*/modeling_*.py",
        "FlashAttention2 classes with repeat_kv (4.36.2, 4.45.2, 4.48.1)",
        "4.48.1",
    ),
)


@dataclass(frozen=True, slots=True)
class Word:
    """A plan's word for attention: the kernels tried in order (none: PyTorch's own order)."""

    word: str
    kernels: tuple[Kernel, ...]
    source: Source


WORDS = {
    row.word: row
    for row in (
        Word("eager", (Kernel.EAGER,), Source("Transformers attention interface", "eager_attention_forward", "5.24.0")),
        Word("unfused", (Kernel.EAGER,), Source("Transformer Engine attention", "UnfusedDotProductAttention", "2.11")),
        Word("flash", (Kernel.PACKAGE,), Source("Transformers attention interface", "flash_attention_2", "5.24.0")),
        Word("flex", (Kernel.FLEX,), Source("Transformers attention interface", "flex_attention", "5.24.0")),
        Word("fused", (Kernel.CUDNN,), Source("Transformer Engine attention", "FusedAttention", "2.11")),
        Word(
            "mem-efficient", (Kernel.EFFICIENT, Kernel.MATH),
            Source("PyTorch torch.nn.attention", "sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)", "v2.13"),
        ),
        Word("math", (Kernel.MATH,), Source("PyTorch torch.nn.attention", "sdpa_kernel(SDPBackend.MATH)", "v2.13")),
        *(
            Word(word, kernels, Source("torchtitan attention", "models/attention.py, sdpa_kernel(...)", "3b85aa31f"))
            for word, kernels in (("flash-first", TRIES), ("cudnn-first", CUDNN_FIRST))
        ),
        Word("sdpa", (), Source("PyTorch torch.nn.functional", "scaled_dot_product_attention", "v2.13")),
    )
}  # fmt: skip
