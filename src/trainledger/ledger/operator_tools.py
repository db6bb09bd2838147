"""Small things that writers of operators share: inputs, parameters, temporaries inside a step."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.devices import DEVICES
from trainledger.facts.dtypes import DType
from trainledger.facts.kernels import CUBLAS
from trainledger.ledger.aten import temporary
from trainledger.ledger.tape import Step, Tape, born, dead
from trainledger.model.program import Role, Weight

ONE = Axis(Dim.ONE, 1)
SCALAR: Dims = (ONE,)


def entry(t: Tape, name: str, dims: Dims, dtype: DType, grad: bool = True) -> int:
    """A tensor that the benchmark makes before it measures."""
    t.scope = name
    return t.outside(dims, dtype, grad)


def parameter(t: Tape, name: str, dims: Dims, dtype: DType) -> int:
    """A weight of the operator's module."""
    return t.outside(dims, dtype, True, Weight(name, dims, Role.NORM))


def payloads(t: Tape, *values: int | None) -> list[int]:
    """Bytes of these tensors, not rounded; of one that there is none of, none."""
    return [t.dtype[value].bytes_of(elements(t.dims[value])) for value in values if value is not None]


def passing(*storages: int) -> tuple[Step, ...]:
    """Temporaries that live for one kernel."""
    return (*born(*storages), *dead(*storages))


def several(t: Tape, dims: Dims, dtype: DType, *names: str) -> tuple[int, ...]:
    """Temporaries of equal dims."""
    return tuple(temporary(t, dims, dtype, name) for name in names)


def workspace(device: str, architecture: str) -> int:
    """Bytes of one thread's workspace for matrix products on a device, or on an architecture where none is named."""
    if device in DEVICES:
        architecture = DEVICES[device].architecture
    return CUBLAS.large if architecture in CUBLAS.architectures else CUBLAS.default
