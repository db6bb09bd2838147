"""torchao's CPUOffloadOptimizer: which parameters it steps on the host, and what it keeps there."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class HostStep:
    """Parameters of at least `smallest` elements are stepped on the host: a page-locked copy of each, a page-locked
    gradient, and the optimizer's states lie there. `optimizers`: those that it was read with, by a plan's names;
    `frameworks`: whose scripts can take it."""

    smallest: int
    optimizers: tuple[str, ...]
    frameworks: tuple[str, ...]
    source: Source


SMALLEST, FREED = "minimal_size", "offload_gradients"  # its own settings, among the optimizer's options
HOST_STEP = HostStep(
    4096,
    ("adam", "adamw", "sgd", "sgd-momentum"),
    ("torch", "transformers", "torchtune"),
    Source("torchao CPUOffloadOptimizer", "torchao/optim/cpu_offload.py", "0.18.0"),
)
