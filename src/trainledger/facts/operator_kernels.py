"""Kernels of published operator benchmarks: what they make, by release, and what a benchmark's process kept."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Liger's layer norm from a release on: gradients of weight and bias are rows of sums, one for each
    multiprocessor (`partial`), in fp32 (`wide`) or in the weight's dtype, else they are added up in place."""

    since: str
    partial: bool
    wide: bool
    source: Source


def _liger(file: str, version: str) -> Source:
    return Source("Liger-Kernel", f"liger_kernel/ops/{file}", version)


_LAYER_NORMS: tuple[LayerNorm, ...] = (
    LayerNorm("0.6.4", True, True, _liger("layer_norm.py", "0.6.4 to 0.8.2")),
    # the benchmark's rows of 0.6.0 were taken after that release, with the code that 0.6.1 has
    LayerNorm("0.6.0", False, False, _liger("layer_norm.py", "0.6.1 to 0.6.3")),
    LayerNorm("", True, False, _liger("layer_norm.py", "0.2.1 to 0.5.10")),
)


def liger_layer_norm(release: str) -> LayerNorm:
    """The row of a release; an unknown release counts as the newest."""
    return next(row for row in _LAYER_NORMS if at_least(release, row.since))


@dataclass(frozen=True, slots=True)
class CompiledSweep:
    """A benchmark whose torch.compile keeps every module that it ever compiled, with its weights and gradients.

    `rows` and `widths`: the sizes of the tables it goes through, widths outermost; its speed is measured before its
    memory. `before`: how many times all tables of the last width are held when memory is first measured: forward and
    backward kept weights, and gradients once; those of widths before it had been collected. `each`: how many times a
    sweep that measures memory adds its tables. `sure`: the most rows up to which the last sweep over compiled tables
    held all of it; Python's garbage collector, which alone frees such modules, ran at a table after that.
    """

    rows: tuple[int, ...]
    widths: tuple[int, ...]
    before: int
    each: int
    sure: int
    source: Source


EMBEDDING_SWEEP = CompiledSweep(
    tuple(2**power for power in range(10, 18)),
    (768, 4096),
    3,
    2,
    8192,
    Source(
        "Liger-Kernel benchmarks",
        "benchmark/scripts/benchmark_embedding.py; which modules were still held is inferred from its measurements",
        "0.2.1",
    ),
)


@dataclass(frozen=True, slots=True)
class Sort:
    """torch.sort on CUDA: rows of up to `small` elements are sorted where the results lie. Longer ones, from
    `segments` rows on, take int64 places and one block that holds the other halves of keys and places, and `header`
    bytes more."""

    small: int
    segments: int
    header: int
    source: Source


SORT = Sort(
    4096,
    128,
    1,
    Source(
        "PyTorch aten/src/ATen/native/cuda",
        "Sort.cpp, sort_cuda_kernel; Sort.cu, launch_stable_sort_kernel, segmented_sort_pairs; CUB DeviceSegmentedSort",
        "v2.4 to v2.13",
    ),
)


@dataclass(frozen=True, slots=True)
class EagerSparsemax:
    """Releases before `until`, whose sparsemax ran the operations of its benchmark's baseline in forward. No release
    ships that code: both published benchmarks measured the baseline's bytes for it."""

    until: str
    source: Source


EAGER_SPARSEMAX = EagerSparsemax(
    "0.5.9",
    Source(
        "Liger-Kernel benchmarks",
        "benchmark/scripts/benchmark_sparsemax.py, torch_sparsemax; that the kernel ran it is inferred from its "
        "measurements",
        "0.5.8",
    ),
)


@dataclass(frozen=True, slots=True)
class CutCrossEntropy:
    """Apple's cut cross-entropy: a lock for `rows` rows of its matrices, in backward for `columns` columns of each."""

    rows: int
    columns: int
    source: Source


CUT_CROSS_ENTROPY = CutCrossEntropy(
    128,
    64,
    Source("Apple ml-cross-entropy", "cut_cross_entropy/cce_lse_forward.py, cce_backward.py, cce.py", "d42911f9b1"),
)


@dataclass(frozen=True, slots=True)
class GroupedExperts:
    """Liger's fused experts: rows of one tile, and slots (tokens x experts of each) that one block counts."""

    tile: int
    slots: int
    source: Source


GROUPED_EXPERTS = GroupedExperts(64, 1024, _liger("fused_moe.py", "0.8.0 to 0.8.2"))
