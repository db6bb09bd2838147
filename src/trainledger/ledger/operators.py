"""One operator by itself, estimated by its rule: what a benchmark of it peaks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import BOOL, BF16, DTYPES, FP32, INT64, DType
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE
from trainledger.facts.kernels import CUBLAS
from trainledger.facts.operator_runs import HARNESSES, Harness
from trainledger.ledger import aten, fused_head, nn, rules_liger
from trainledger.ledger.activations import activation
from trainledger.ledger.losses import torch_cross_entropy
from trainledger.ledger.rules import Frame, Setting, rms_norm
from trainledger.ledger.software import Software
from trainledger.ledger.tape import EXTERNAL, Code, Prim, Step, Storage, Tape
from trainledger.ledger.walk import Backward, run_forward
from trainledger.model.parts import ACTIVATIONS
from trainledger.model.program import Norm, NormKind, Role, Weight

FORWARD, BACKWARD, BOTH = "forward", "backward", "forward+backward"
ABOVE_INPUTS = "allocated_above_inputs"


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """What was measured: shapes in elements, passes (`forward`, `backward` or both), which peak, on which device."""

    operator: str
    implementation: str
    shape: Mapping[str, Any]
    dtype: str | None = None
    passes: str = BOTH
    metric: str = "allocated_peak"
    release: str = ""
    device: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Written(NamedTuple):
    """An operator on a tape: its inputs and weights (which need gradients), its result, further tensors it is given."""

    tape: Tape
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    result: int
    given: tuple[int, ...] = ()


def operator_peak(run: OperatorRun) -> int | None:
    """Bytes at the operator's peak; None when the program lacks the operator, its implementation or its benchmark."""
    writer, harness = WRITERS.get((run.operator, run.implementation)), HARNESSES.get(run.operator)
    if writer is None or harness is None:
        return None
    try:
        written = writer(run)
    except (KeyError, TypeError, ValueError):
        return None  # the record does not say what the operator needs
    return _peak(run, harness, written)
