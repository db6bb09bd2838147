"""Transformer Engine under Megatron-Core: releases by container, workspaces, and what changed between releases."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import MIB

NAME = "te"
PACKAGE = "transformer_engine"


@dataclass(frozen=True, slots=True)
class Shipped:
    """The release that comes with software whose version begins with `version` where the plan names none."""

    package: str
    version: str
    release: str
    source: Source


# The first row that holds counts.
SHIPPED = (
    Shipped(
        "megatron", "main", "2.17.1",
        Source("Megatron-LM pyproject.toml", "dependency transformer-engine, commit 4329ff84", "2026-08"),
    ),
    Shipped(
        "container", "ngc-pytorch-25.09", "2.7",
        Source("NVIDIA optimized frameworks support matrix", "PyTorch 25.09: Transformer Engine 2.7", "2025-09"),
    ),
    Shipped(
        "megatron", "core_r0.14", "2.7",
        Source("Megatron-LM docker/.ngc_version.lts and core_r0.14.0", "NGC PyTorch 25.09", "2025-10"),
    ),
    Shipped(
        "megatron", "NeMo 25", "2.7",
        Source("NeMo framework software component versions", "25.07 to 25.09: release 2.5 to 2.7", "2025-09"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GemmWorkspace:
    """The workspace that all matrix products of a process share: bytes below and from architecture `wide` on, where
    `more` are added from a release on. `streams`: products of several matrices at once take one each besides."""

    small: int
    large: int
    wide: int
    more: int
    since: str
    streams: int
    source: Source


GEMM = GemmWorkspace(
    4_194_304, 32 * MIB, 90, 1024, "2.8", 4,
    Source(
        "Transformer Engine pytorch/cpp_extensions/gemm.py",
        "get_cublas_workspace_size_bytes; general_grouped_gemm, _NUM_MAX_UB_STREAMS", "v2.5 to v2.17",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changes:
    """Releases from which: the linear layer's own norm output dies before the norm's backward (`clears`); ring
    attention hands on another tensor than it saves (`apart`); experts' gradients that are added in place share
    stand-ins (`shares`); attention by heads saves its output as it was made, not as it was sent back (`unsent`)."""

    clears: str
    apart: str
    shares: str
    unsent: str
    source: Source


CHANGES = Changes(
    "2.8", "2.15", "2.10", "2.8",
    Source(
        "Transformer Engine pytorch/module/{layernorm_linear,grouped_linear}.py, attention/.../context_parallel.py",
        "read at v2.5, v2.7 to v2.17.1",
    ),
)  # fmt: skip

LINEAR = Source("Transformer Engine linear layers", "pytorch/module/{linear,layernorm_linear}.py", "v2.5 to v2.17")
DUMMY = Source("Transformer Engine: weight gradients added in place", "pytorch/module/base.py, get_dummy_wgrad", "2.11")
MASK = Source(
    "Megatron-LM: the causal mask of a batch",
    "megatron/core/datasets/gpt_dataset.py; training/arguments.py, --no-create-attention-mask-in-dataloader",
    "0.14 to 0.19",
)
PACKED = 3  # queries, keys and values of one token lie together


@dataclass(frozen=True, slots=True)
class CudnnWork:
    """cuDNN attention's backward: a deterministic one on these architectures keeps the probabilities' gradient, whose
    rows and columns are rounded up to `tile`; any other sums queries' gradients in fp32."""

    tile: int
    architectures: tuple[str, ...]
    source: Source


CUDNN = CudnnWork(
    64, ("sm90",),
    Source("cudnn-frontend scaled_dot_product_flash_attention.h", "workspace of the backward node", "1.14"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Backends:
    """Which attention runs where cuDNN's is asked for: FlashAttention up to architecture `oldest`, and from `newest` on
    where a deterministic algorithm is asked for and there is dropout."""

    oldest: int
    newest: int
    source: Source


BACKENDS = Backends(
    89, 100,
    Source(
        "Transformer Engine attention/dot_product_attention/utils.py", "get_attention_backend; fused_attn.cpp", "2.17"
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ring:
    """Context parallelism over a ring: buffers, in backward, of keys, values and their gradients that are sent and
    received; `steps` of the gathering kind, each of a part of the queries; `stream`: a number for the one on
    which every second step runs."""

    buffers: int
    steps: int
    stream: int
    source: Source


RING = Ring(
    2, 2, 2,
    Source("Transformer Engine context_parallel.py", "AttnFuncWithCPAndKVP2P, AttnFuncWithCPAndKVAllGather", "2.17"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Torch:
    """Masks of the softmax kernel: sequences between these lengths, a multiple of `multiple`, and heads times sequences
    a multiple of `heads`; else PyTorch's own operations run."""

    shortest: int
    longest: int
    multiple: int
    heads: int
    source: Source


SOFTMAX = Torch(
    16, 16384, 8, 4,
    Source("Transformer Engine dot_product_attention/softmax.py", "FusedScaleMaskSoftmax.is_kernel_available", "2.17"),
)  # fmt: skip
