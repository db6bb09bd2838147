"""What PyTorch's tensor parallelism runs between a model's own operations: tensors of a group of ranks made whole,
added up, spread.

Source: torch/distributed/tensor/parallel/style.py, tensor/_redistribute.py (v2.4 to v2.13).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Dim
from trainledger.model.operations import Low


@dataclass(frozen=True, slots=True)
class Gathered:
    """Every rank gets the parts of all `ranks` along `dim`; `low`: they are cast before; `fused`: as the products that
    read them run."""

    ranks: int
    dim: Dim
    low: Low | None = None
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Summed:
    """The sum over `ranks`; `spread`: each takes its part of the sequence; `low`: the gradient's parts are cast before
    ranks gather them; `fused`: as the product that makes it runs."""

    ranks: int
    spread: bool
    low: Low | None = None
    fused: bool = False


@dataclass(frozen=True, slots=True)
class Copied:
    """What every rank has whole; its gradient is added up over ranks."""


@dataclass(frozen=True, slots=True)
class Divided:
    """This rank's part of the tokens of what every one of `ranks` has whole, as a view."""

    ranks: int


Collective = Gathered | Summed | Copied | Divided
