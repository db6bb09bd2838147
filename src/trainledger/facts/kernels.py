"""Kernels: what they allocate besides their results."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class ChunkedNorm:
    """The foreach norm: elements of one chunk, each with an fp32 partial sum."""

    chunk: int
    source: Source


NORM = ChunkedNorm(
    65536,
    Source("PyTorch aten/src/ATen/native/cuda/ForeachReduceOp.cu", "foreach_tensor_norm_cuda, kChunkSize", "v2.13"),
)


@dataclass(frozen=True, slots=True)
class MatmulWorkspace:
    """cuBLAS workspace bytes, one per handle and stream: by default, and on the architectures listed (`since`: from a
    version of PyTorch on). CUBLAS_WORKSPACE_CONFIG holds groups of `pair` numbers: size in units of `unit`, count."""

    default: int
    large: int
    architectures: tuple[str, ...]
    since: tuple[tuple[str, str], ...]
    pair: int
    unit: int
    source: Source


CUBLAS = MatmulWorkspace(
    4096 * 1024 * 2 + 16 * 1024 * 8,
    4096 * 1024 * 8,
    ("sm90",),
    (("sm100", "2.12"), ("sm103", "2.12"), ("sm110", "2.12"), ("sm120", "2.12")),
    2,
    1024,
    Source("PyTorch aten/src/ATen/cuda/CublasHandlePool.cpp", "parseChosenWorkspaceSize; pull request 175344", "v2.13"),
)


@dataclass(frozen=True, slots=True)
class EmbeddingBackward:
    """embedding_dense_backward on CUDA: up to `small` ids nothing but the gradient; above it a sort, with int64 arrays
    per id (`per_id`), per distinct segment (`per_segment`), and fp32 partial rows, ids // `ids_per_partial` more than
    there are segments."""

    small: int
    per_id: int
    per_segment: int
    ids_per_partial: int
    source: Source


EMBEDDING_BACKWARD = EmbeddingBackward(
    3072,
    3,
    2,
    10,
    Source("PyTorch aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu", "v2.4.0 lines 252 to 318", "v2.4 to v2.13"),
)


@dataclass(frozen=True, slots=True)
class NativeNorm:
    """torch.nn.RMSNorm: from release `late` on it is cast back after the weight, from `fused` on it is one kernel."""

    late: str
    fused: str
    source: Source


NATIVE_NORM = NativeNorm(
    "2.7",
    "2.9",
    Source("PyTorch aten/src/ATen/native/layer_norm.cpp", "rms_norm_symint; pull request 153666", "v2.4 to v2.13"),
)


@dataclass(frozen=True, slots=True)
class SortedScatter:
    """A deterministic scatter of rows: int64 arrays with an entry for every element of what is added, all at once."""

    arrays: tuple[str, ...]
    source: Source


SORTED_SCATTER = SortedScatter(
    (
        "row coordinates",
        "column coordinates",
        "flat index",
        "wrapped index",
        "sorted index",
        "order",
        "range",
        "sort's keys",
        "sort's values",
    ),
    Source(
        "PyTorch deterministic scatter_add",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp, _scatter_via_index_put; cuda/Indexing.cu; "
        "cub DeviceRadixSort::SortPairs, temporary storage of keys and values",
        "v2.4 to v2.13",
    ),
)
REFERENCE = "sm80"  # the architecture whose kernels are assumed where a plan names no device
