"""Plain data parallelism and loss scaling: what they keep beside the model."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import MIB


@dataclass(frozen=True, slots=True)
class DataParallel:
    """DistributedDataParallel: bytes of one flat copy of weights when it is built, how many of these are under way at
    a time, bytes of the first gradient bucket, and of each later one."""

    broadcast: int
    under_way: int
    first_bucket: int
    bucket: int
    source: Source


DDP = DataParallel(
    250 * MIB,
    2,
    MIB,
    25 * MIB,
    Source(
        "PyTorch DistributedDataParallel",
        "torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp, comm.cpp",
        "v2.4 to v2.13",
    ),
)


@dataclass(frozen=True, slots=True)
class Scaler:
    """The loss scaler's own tensors: fp32 scalars that stay on the device."""

    name: str
    tensors: int
    source: Source


SCALER = Scaler("loss scale and growth tracker", 2, Source("PyTorch GradScaler", "torch/amp/grad_scaler.py", "2.13"))
