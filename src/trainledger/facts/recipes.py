"""Recipes: which copies of every parameter a way of training keeps, and how data parallelism splits them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.dtypes import BF16, FP16, FP32, INT8, DType

ZERO_PAPER = Source("ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", "arXiv:1910.02054")
MIXED_PAPER = Source("Mixed Precision Training", "arXiv:1710.03740, section 3.1", "2018-02")
ADAM8_PAPER = Source("8-bit Optimizers via Block-wise Quantization", "arXiv:2110.02861, section 2", "2022-06")
MEGATRON_DOC = Source("Megatron Core: Distributed Optimizer", "docs.nvidia.com/megatron-core, dist_optimizer", "2025")
TORCH_ADAMW = Source("PyTorch", "torch/optim/adam.py: states have the parameter's dtype", "2.13")
TORCH_SGD = Source("PyTorch", "torch/optim/sgd.py", "2.13")
ADAM_PAPER = Source("Adam: A Method for Stochastic Optimization", "arXiv:1412.6980, algorithm 1", "2017-01")


class Copy(StrEnum):
    """One copy of a parameter that a recipe may keep."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    MAIN_GRADIENTS = "main_gradients"
    MASTER = "master_weights"
    FIRST = "first_moment"
    SECOND = "second_moment"
    MOMENTUM = "momentum"


OPTIMIZER_COPIES = (Copy.FIRST, Copy.SECOND, Copy.MOMENTUM)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A way of training: the dtype of each copy kept per parameter, small scales and step counts left out."""

    name: str
    title: str
    copies: tuple[tuple[Copy, DType], ...]
    source: Source

    def dtype(self, copy: Copy) -> DType | None:
        """The dtype of that copy, or None where the recipe keeps none."""
        return dict(self.copies).get(copy)


def _recipe(name: str, title: str, source: Source, *copies: tuple[Copy, DType]) -> Recipe:
    return Recipe(name, title, copies, source)


ADAM_FP32 = ((Copy.FIRST, FP32), (Copy.SECOND, FP32))
_ROWS = (
    _recipe("fp32", "all fp32, Adam", ADAM_PAPER, (Copy.WEIGHTS, FP32), (Copy.GRADIENTS, FP32), *ADAM_FP32),
    _recipe(
        "mixed",
        "16-bit weights and gradients, fp32 master weights, Adam",
        ZERO_PAPER,
        (Copy.WEIGHTS, BF16),
        (Copy.GRADIENTS, BF16),
        (Copy.MASTER, FP32),
        *ADAM_FP32,
    ),
    _recipe(
        "bf16-fp32grad",
        "bf16 weights, fp32 gradients, fp32 master weights, Adam",
        MEGATRON_DOC,
        (Copy.WEIGHTS, BF16),
        (Copy.GRADIENTS, FP32),
        (Copy.MASTER, FP32),
        *ADAM_FP32,
    ),
    _recipe(
        "fp16-fp32maingrad",
        "fp16 weights and gradients, a second fp32 gradient buffer, fp32 master weights, Adam",
        MEGATRON_DOC,
        (Copy.WEIGHTS, FP16),
        (Copy.GRADIENTS, FP16),
        (Copy.MAIN_GRADIENTS, FP32),
        (Copy.MASTER, FP32),
        *ADAM_FP32,
    ),
    _recipe(
        "bf16-no-master",
        "bf16 weights and gradients, fp32 Adam, no master weights",
        ZERO_PAPER,
        (Copy.WEIGHTS, BF16),
        (Copy.GRADIENTS, BF16),
        *ADAM_FP32,
    ),
    _recipe(
        "bf16",
        "everything in bf16: a bf16 model under torch's AdamW",
        TORCH_ADAMW,
        (Copy.WEIGHTS, BF16),
        (Copy.GRADIENTS, BF16),
        (Copy.FIRST, BF16),
        (Copy.SECOND, BF16),
    ),
    _recipe(
        "adam-8bit",
        "16-bit weights and gradients, fp32 master weights, 8-bit Adam",
        ADAM8_PAPER,
        (Copy.WEIGHTS, BF16),
        (Copy.GRADIENTS, BF16),
        (Copy.MASTER, FP32),
        (Copy.FIRST, INT8),
        (Copy.SECOND, INT8),
    ),
    _recipe(
        "sgd-momentum",
        "16-bit weights and gradients, fp32 momentum",
        MIXED_PAPER,
        (Copy.WEIGHTS, BF16),
        (Copy.GRADIENTS, BF16),
        (Copy.MOMENTUM, FP32),
    ),
    _recipe("fp32-sgd", "all fp32, SGD without momentum", TORCH_SGD, (Copy.WEIGHTS, FP32), (Copy.GRADIENTS, FP32)),
    _recipe("frozen", "16-bit weights, nothing trained", ZERO_PAPER, (Copy.WEIGHTS, BF16)),
)
RECIPES: dict[str, Recipe] = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class Split:
    """A data-parallel strategy by the copies that it divides over its ranks; the others are replicated."""

    name: str
    title: str
    divided: tuple[Copy, ...]
    source: Source


STATES = (Copy.MASTER, *OPTIMIZER_COPIES)
BOTH_GRADIENTS = (Copy.GRADIENTS, Copy.MAIN_GRADIENTS)
SPLITS: dict[str, Split] = {
    row.name: row
    for row in (
        Split("ddp", "replicated", (), ZERO_PAPER),
        # Megatron divides the fp32 main gradients where they are a buffer of their own, and keeps the model's.
        Split("distributed-optimizer", "Megatron distributed optimizer", (Copy.MAIN_GRADIENTS, *STATES), MEGATRON_DOC),
        Split("zero1", "ZeRO-1: optimizer states", STATES, ZERO_PAPER),
        Split("zero2", "ZeRO-2: and gradients", (*STATES, *BOTH_GRADIENTS), ZERO_PAPER),
        Split("zero3", "ZeRO-3, FSDP: and weights", (*STATES, *BOTH_GRADIENTS, Copy.WEIGHTS), ZERO_PAPER),
    )
}


class Grouping(StrEnum):
    """To which group the master weights are counted. Both are in use; what matters is to count them once."""

    WITH_OPTIMIZER = "master_with_optimizer"
    WITH_WEIGHTS = "master_with_weights"


class Group(StrEnum):
    """The three groups of model states."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer_states"
