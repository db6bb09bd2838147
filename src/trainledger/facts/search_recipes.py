"""Published configurations of well-known models at their device counts, with the speed that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Published:
    """A run that was published: catalogue names of the model, the goal (devices, sequences a step, tokens each), the
    degrees, how products were made, and tokens a second and device. `with_keys`: keys of the plan that the run had."""

    models: tuple[str, ...]
    device: str
    devices: int
    global_batch: int
    sequence: int
    degrees: Mapping[str, int]
    compute: str
    speed: int
    source: Source
    with_keys: Mapping[str, Any] = field(default_factory=dict)


def _bridge(release: str) -> Source:
    where = "github.com/NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary-archive.md, DGX-H100"
    return Source(f"Megatron-Bridge performance summary, {release} container", where, f"20{release}")


_NEMO = Source(
    "NeMo performance benchmarks, 24.07 container",
    "github.com/NVIDIA/NeMo, docs/source/performance/performance_summary.md",
    "2024-07",
)
# What these recipes set: 8-bit products with one scale a tensor, weights gathered in 8 bits, gradients in bf16.
LOW_PRECISION: Mapping[str, Any] = {
    "weights": "bf16",
    "compute": "fp8",
    "gradients": "bf16",
    "reduce": "bf16",
    "master": "fp32",
    "fp8": {"recipe": "tensorwise", "format": "hybrid", "param_gather": True},
}
_LOW = {"precision": LOW_PRECISION}
# scripts/performance/utils/executors.py of Megatron-Bridge sets it for runs in the cloud; without it this run is tight
_RANGED = {**_LOW, "stack": {"allocator": {"expandable_segments": True}}}
_8B, _70B, _405B = (
    ("llama-3-8b", "llama-3.1-8b"),
    ("llama-3-70b", "llama-3.1-70b", "llama-3.3-70b"),
    ("llama-3.1-405b",),
)

PUBLISHED: tuple[Published, ...] = (
    Published(_8B, "h100-80gb", 8, 128, 8192, {"cp": 2, "micro_batch": 1}, "fp8", 12_036, _NEMO, _LOW),
    Published(
        _70B, "h100-80gb", 64, 128, 8192, {"tp": 4, "pp": 4, "cp": 2, "vpp": 5, "micro_batch": 1}, "fp8", 1_533, _NEMO,
        _LOW,
    ),
    Published(
        _70B, "h100-80gb", 64, 128, 8192, {"tp": 4, "pp": 8, "vpp": 5, "micro_batch": 1}, "fp8", 1_619,
        _bridge("25.09"), _RANGED,
    ),
    Published(
        _405B, "h100-80gb", 1024, 512, 8192, {"tp": 8, "pp": 8, "cp": 2, "vpp": 8, "micro_batch": 1}, "fp8", 302,
        _bridge("25.09"), _LOW,
    ),
    Published(
        ("deepseek-v3",), "h100-80gb", 1024, 8192, 4096,
        {"tp": 2, "pp": 8, "vpp": 4, "ep": 64, "etp": 1, "micro_batch": 1}, "fp8", 1_297, _bridge("25.09"), _LOW,
    ),
)  # fmt: skip
