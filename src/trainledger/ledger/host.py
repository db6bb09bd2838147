"""Tensors that an offloaded optimizer, or offloaded weights, keep in the host's memory or on NVMe, on one rank.

Source: deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, runtime/swap_tensor (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.facts.code_read import INPUTS_FETCHED
from trainledger.facts.deepspeed import DEEPSPEED, PINNED, SWAP
from trainledger.facts.dtypes import DType
from trainledger.facts.optimizer_bytes import StateOptions, state_bytes
from trainledger.facts.optimizer_kinds import Kind, Optimizer
from trainledger.lines.line import Account, Duty, Line, Place, Use

if TYPE_CHECKING:
    from trainledger.ledger.opening import Job

Lines = tuple[tuple[Line, int], ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """Where an offloaded part lies: in the host's memory (page-locked or not), or on NVMe behind buffers of the host:
    how many, and elements of each. `masters`: master weights are page-locked too. `rounded`: PyTorch's allocator makes
    these buffers."""

    nvme: bool
    pinned: bool
    buffers: int
    size: int
    masters: bool = False
    rounded: bool = False


def host_line(account: Account, name: str, size: int, dtype: DType, pinned: bool = False) -> Line:
    """A tensor of the host (elements). PyTorch rounds page-locked memory up to a power of two."""
    count = dtype.bytes_of(size)
    unit = 1 << max(count - 1, 0).bit_length() if pinned and count else count
    why = "page-locked: rounded up to a power of two" if pinned else ""
    dims, source = (Axis(Dim.ELEMENTS, size),), PINNED.source if pinned else DEEPSPEED.source
    return Line(account, name, dims, dtype, unit, Basis.COUNTED, source, why, Place.HOST)


def waiting(job: Job) -> Lines:
    """Inputs of recomputed layers that wait in the host's memory for backward; not page-locked."""
    run, model = job.run, job.model
    if not run.software.fetches:
        return ()
    size = run.setting.batch * run.setting.sequence * model.hidden.size
    line = host_line(Account.ACTIVATIONS, "inputs of layers", size, run.setting.weights)
    return ((replace(line, source=INPUTS_FETCHED), sum(block.count for block in model.blocks)),)


def passing(line: Line) -> Line:
    """A line of the host as a buffer through which what lies on NVMe comes and goes."""
    return replace(line, use=Use(duty=Duty.PASSED))


def nvme_line(account: Account, name: str, size: int, dtype: DType) -> Line:
    """A tensor that lies on NVMe (elements)."""
    return replace(host_line(account, name, size, dtype), source=SWAP.source, place=Place.NVME)


def optimizer_lines(
    kept: Kept, parts: Sequence[int], master: DType, row: Optimizer, how: StateOptions
) -> Iterator[tuple[Line, int]]:
    """Master weights, their gradients and states of these parts (elements of each)."""
    if kept.nvme:
        largest = max(parts, default=0)
        count = kept.buffers or SWAP.optimizer_buffers
        buffer = host_line(Account.OPTIMIZER, "swap buffer of the optimizer", largest, master, kept.rounded)
        yield passing(buffer), count

    def line(account: Account, name: str, size: int, dtype: DType, pinned: bool = False) -> tuple[Line, int]:
        made = nvme_line(account, name, size, dtype) if kept.nvme else host_line(account, name, size, dtype, pinned)
        return made, 1

    for number, size in enumerate(parts, 1):
        of = f"part {number}" if parts[1:] else "this rank's part"
        yield line(Account.MASTER, f"master weights, {of}", size, master, kept.masters)
        yield line(Account.GRADIENTS, f"fp32 gradients, {of}", size, master, kept.pinned)
        for state in state_bytes(row, (size,), master, how):
            if state.kind is not Kind.STEP:
                name = f"{state.kind.value} {state.part.value}, {of}"
                yield line(Account.OPTIMIZER, name, state.elements, state.dtype)
