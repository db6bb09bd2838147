"""Fused kernel sets for Transformers models: which families they patch, and how their norms work."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class KernelSet:
    """A kernel set: families whose norms, rotary embedding and feed-forward product (`gated`) it replaces, families
    where it replaces the loss alone, and families whose norms keep the incoming gradient instead of writing over it.

    `learns`: its norms make a gradient for their weight. `dense`: families whose models with experts it patches more or
    less of, by how it is applied.
    """

    name: str
    families: frozenset[str]
    losses: frozenset[str]
    apart: frozenset[str]
    gated: bool
    learns: bool
    source: Source
    dense: frozenset[str] = frozenset()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KERNEL_SETS: dict[str, KernelSet] = {
    row.name: row
    for row in (
        KernelSet(
            "liger",
            _names(
                "llama mistral mixtral gemma gemma2 gemma3_text gemma4_text glm4 gpt_oss granite olmo2 "
                "qwen2 qwen3 qwen3_moe smollm3 phi3"
            ),
            frozenset(),
            _names("gemma2 gemma3_text gemma4_text olmo2 glm4"),
            True,
            True,
            Source("Liger-Kernel", "liger_kernel/transformers/monkey_patch.py, rms_norm.py", "0.8.0"),
            _names("gemma4_text"),
        ),
        KernelSet(
            "foak",
            _names("llama mistral mixtral granite"),
            _names("gpt_bigcode"),
            frozenset(),
            False,
            False,
            Source("fms-acceleration fused ops and kernels", "fms_acceleration_foak/models/*.py", "0.7.4"),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class WholeAdapters:
    """A kernel set whose plugin hands the adapters of quantised bases to FSDP as modules to ignore: every rank holds
    them whole, and a hook on each reduces its gradient."""

    kernels: str
    source: Source


WHOLE_ADAPTERS = WholeAdapters(
    "foak",
    Source("fms-acceleration and FSDP", "fms_acceleration_foak/utils.py, lora_adapters_switch_ddp_from_fsdp", "0.7.4"),
)


@dataclass(frozen=True, slots=True)
class FusedLora:
    """Projections (last parts of their names) that fms-acceleration runs in one function each where all of a group are
    adapted, on bases quantised in one of these `kinds`."""

    groups: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]
    source: Source


FUSED_LORA = FusedLora(
    (("q_proj", "k_proj", "v_proj"), ("o_proj",)),
    ("nf4", "gptq4", "gptq8"),
    Source("fms-acceleration fused LoRA", "fms_acceleration_foak/models/utils.py, build_lora_fused_ops", "0.7.4"),
)


@dataclass(frozen=True, slots=True)
class NormGradient:
    """Rows of fp32 partial sums of a norm's weight gradient in Liger: one for each multiprocessor since `by_processor`,
    before that one for each token, in the weight's dtype."""

    by_processor: str
    source: Source


LIGER_NORM = NormGradient("0.4.0", Source("Liger-Kernel", "liger_kernel/ops/rms_norm.py", "0.3.1, 0.4.2"))


@dataclass(frozen=True, slots=True)
class Multiprocessors:
    """Streaming multiprocessors of a device, and threads that one holds; (0, 0) where no device is known. A run names
    the device's architecture, too."""

    count: int
    threads: int
    source: Source
    architecture: str = ""


_PAPERS = Source("NVIDIA CUDA C++ programming guide and architecture white papers", "multiprocessor counts")
UNKNOWN_DEVICE = Multiprocessors(0, 0, _PAPERS)
_BIG, _SMALL, _TURING = 2048, 1536, 1024
MULTIPROCESSORS: dict[str, Multiprocessors] = {
    name: Multiprocessors(count, threads, _PAPERS)
    for name, count, threads in (
        ("v100-16gb", 80, _BIG),
        ("v100-32gb", 80, _BIG),
        ("t4", 40, _TURING),
        ("a10", 72, _SMALL),
        ("a10g", 80, _SMALL),
        ("a30", 56, _BIG),
        ("a40", 84, _SMALL),
        ("a100-40gb", 108, _BIG),
        ("a100-80gb", 108, _BIG),
        ("a100-80gb-pcie", 108, _BIG),
        ("a800-80gb", 108, _BIG),
        ("l4", 58, _SMALL),
        ("l40", 142, _SMALL),
        ("l40s", 142, _SMALL),
        ("h100-80gb", 132, _BIG),
        ("h100-pcie", 114, _BIG),
        ("h800-80gb", 132, _BIG),
        ("h20", 78, _BIG),
        ("h200", 132, _BIG),
        ("gh200-96gb", 132, _BIG),
        ("b200", 148, _BIG),
        ("rtx3090", 82, _SMALL),
        ("rtx4080", 76, _SMALL),
        ("rtx4090", 128, _SMALL),
        ("rtx5090", 170, _SMALL),
        ("rtx-a6000", 84, _SMALL),
        ("rtx-6000-ada", 142, _SMALL),
    )
}


@dataclass(frozen=True, slots=True)
class Reduction:
    """How PyTorch's kernel sums a matrix over its rows on a device: threads of a block, widest vector load, lanes of a
    warp, values that one thread takes at least and at most before the rows are shared among more blocks; bytes that
    one call of the kernel can address (32-bit indexing)."""

    threads: int
    vector: int
    warp: int
    least: int
    most: int
    reach: int
    source: Source


COLUMN_SUM = Reduction(
    512,
    4,
    32,
    16,
    256,
    2**31,
    Source(
        "PyTorch aten/src/ATen/native/cuda/Reduce.cuh",
        "setReduceConfig, global_memory_size; TensorIterator.cpp, can_use_32bit_indexing",
        "v2.4 to v2.13",
    ),
)
