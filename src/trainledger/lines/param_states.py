"""What Megatron-Core's optimizers hold of the parameters in a rank's buffers, by kind, and when each appears.

DistributedOptimizer holds its rank's pieces only; Float16OptimizerWithFloat16Params and, where nothing is in 16 bits,
FP32Optimizer hold whole parameters. A precision-aware one leaves the master weights to Transformer Engine's FusedAdam.
Source: megatron/core/optimizer/{__init__,optimizer,distrib_optimizer,optimizer_config}.py (core_v0.8.0 to
core_v0.19.0); transformer_engine/pytorch/optimizers/fused_adam.py (v1.13 to v2.18).
FusedAdam (Apex, Transformer Engine), FusedSGD and torch's own make their states in the first step, parameter by
parameter; nothing but the master weights is there before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainledger.facts.dtypes import BF16, FP16, FP32, INT16, DType
from trainledger.facts.megatron_buffers import (
    AWARE,
    AWARE_BY_RECIPE,
    BF16_MOMENTS,
    FUSED_ADAM,
    FUSED_RAISING,
    REMAINDERS,
)
from trainledger.lines.param_buffers import Buffer, Parameter
from trainledger.lines.param_ranges import shard

HALF = (FP16, BF16)


class Kind(StrEnum):
    """What is held. The gradient is the copy in fp32 that a step takes where the buffer's is in another dtype."""

    MASTER = "master weights"
    FIRST = "first moment"
    SECOND = "second moment"
    SCALES = "scales of states"
    GRADIENT = "gradients in fp32"


ADAM = (Kind.FIRST, Kind.SECOND)


class Since(StrEnum):
    """When it appears: with the optimizer; in its first step, to stay; in every step, until the next one begins
    (zero_grad)."""

    BUILT = "build"
    FIRST_STEP = "step 1"
    EVERY_STEP = "every step"


@dataclass(frozen=True, slots=True)
class Held:
    """Tensors of one kind: their dtype, the elements of each, and since when."""

    kind: Kind
    dtype: DType
    sizes: tuple[int, ...]
    since: Since

    @property
    def bytes(self) -> int:
        """Their bytes, each tensor's not yet rounded as an allocator does."""
        return sum(self.dtype.bytes_of(size) for size in self.sizes)


@dataclass(frozen=True, slots=True)
class Stepped:
    """An optimizer. `moments`: dtypes of its states (Adam: two; Lion, SGD with momentum: one; SGD: none); `master`:
    dtype of the master weights; `aware`: use_precision_aware_optimizer; `remainders`: store_param_remainders; `recipe`:
    the fp8 recipe, empty without; `release`: Megatron-Core's; `engine`: Transformer Engine's (both empty: newest)."""

    moments: tuple[DType, ...] = (FP32, FP32)
    master: DType = FP32
    aware: bool = False
    remainders: bool = True
    recipe: str = ""
    release: str = ""
    engine: str = ""

    @property
    def keeps_master(self) -> bool:
        """Whether FusedAdam, not Megatron-Core, holds the master weights."""
        by_recipe = not AWARE_BY_RECIPE.holds(self.release) or self.recipe in FUSED_ADAM.recipes
        return self.aware and (self.master != FP32 or by_recipe)

    @property
    def splits(self) -> bool:
        """Whether of a bf16 weight's master only the lower 16 bits are kept."""
        chosen = self.remainders or not AWARE_BY_RECIPE.holds(self.release)
        return self.keeps_master and self.master == FP32 and chosen and REMAINDERS.holds(self.engine)


def states(found: Sequence[Buffer], rank: int, optimizer: Stepped, expert_rank: int | None = None) -> tuple[Held, ...]:
    """What the optimizer holds of these buffers on one data-parallel rank (of an expert's: `expert_rank`, else the same
    modulo their number). Raises ValueError for what Megatron-Core refuses.
    """
    _check(found, optimizer)
    held: list[Held] = []
    for buffer in found:
        inner = expert_rank if buffer.expert and expert_rank is not None else rank
        held += _states(buffer, tuple(_owned(buffer, inner % buffer.ranks)), optimizer)
    return tuple(one for one in held if one.sizes)


def _check(found: Sequence[Buffer], optimizer: Stepped) -> None:
    if not optimizer.aware:
        if any(dtype != FP32 for dtype in (*optimizer.moments, optimizer.master)):
            raise ValueError("states in another dtype than fp32 need the precision-aware optimizer")
        return
    if not AWARE.holds(optimizer.release):
        raise ValueError(f"{AWARE.what}: Megatron-Core has it from {AWARE.release} on")
    if not all(buffer.distributed for buffer in found):
        raise ValueError("the precision-aware optimizer needs the distributed one")
    if len(optimizer.moments) != len(ADAM):
        raise ValueError("the precision-aware optimizer is Adam alone")
    if optimizer.master.name not in FUSED_ADAM.masters:
        raise ValueError(f"FusedAdam keeps master weights in {', '.join(FUSED_ADAM.masters)}")
    for dtype in optimizer.moments:
        if dtype.name not in FUSED_ADAM.moments or (dtype == BF16 and not BF16_MOMENTS.holds(optimizer.engine)):
            raise ValueError(f"how FusedAdam keeps moments in {dtype.name} is not known here")


def _owned(buffer: Buffer, rank: int) -> Iterator[tuple[Parameter, int]]:
    """What this rank's optimizer updates: parameters and how many elements of each."""
    if not buffer.distributed:
        return ((placed.parameter, placed.parameter.elements) for placed in buffer.placed)
    return ((piece.parameter, piece.world.size) for piece in shard(buffer, rank))


def _states(buffer: Buffer, owned: Sequence[tuple[Parameter, int]], optimizer: Stepped) -> Iterator[Held]:
    every = tuple(size for _, size in owned)
    half = tuple(size for one, size in owned if one.dtype in HALF)
    if optimizer.keeps_master:
        split = tuple(size for one, size in owned if optimizer.splits and one.dtype == BF16)
        rest = tuple(size for one, size in owned if not (optimizer.splits and one.dtype == BF16))
        yield Held(Kind.MASTER, INT16, split, Since.FIRST_STEP)
        yield Held(Kind.MASTER, optimizer.master, rest, Since.FIRST_STEP)
    else:
        yield Held(Kind.MASTER, FP32, half, Since.BUILT)
    for kind, dtype in zip(ADAM, optimizer.moments, strict=False):
        yield Held(kind, dtype, every, Since.FIRST_STEP)
    kept = (*optimizer.moments, *((optimizer.master,) if optimizer.keeps_master else ()))
    scaled = [dtype for dtype in kept if dtype != FP32]
    yield Held(Kind.SCALES, FP32, (1,) * len(every) * len(scaled), Since.FIRST_STEP)
    if buffer.gradients != FP32 and not optimizer.keeps_master:
        yield Held(Kind.GRADIENT, FP32, every if buffer.distributed else half, Since.EVERY_STEP)


def raised(sizes: Sequence[int], optimizer: Stepped) -> int:
    """Bytes of the copies in fp32 that FusedAdam makes of one parameter group's states while it updates them.

    `sizes`: elements of each piece in the group. A copy of every state that is kept in less; moments in bf16, both, are
    updated as they are from Transformer Engine 2.13 on.
    """
    if not optimizer.aware:
        return 0
    fused = all(dtype == BF16 for dtype in optimizer.moments) and FUSED_RAISING.holds(optimizer.engine)
    kept = (*(() if fused else optimizer.moments), *((optimizer.master,) if optimizer.keeps_master else ()))
    return sum(FP32.bytes_of(size) for dtype in kept if dtype != FP32 for size in sizes)
