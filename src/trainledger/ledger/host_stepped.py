"""An optimizer of one device that is stepped on the host: weights stay on the device, states and copies do not.

Source: torchao/optim/cpu_offload.py, CPUOffloadOptimizer (0.18.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import elements
from trainledger.facts.optimizer_bytes import state_bytes
from trainledger.facts.optimizer_kinds import Kind
from trainledger.facts.torchao_offload import FREED, HOST_STEP, SMALLEST
from trainledger.ledger.host import host_line
from trainledger.ledger.layout import Layout, Schedule, Stored
from trainledger.ledger.opening import Job
from trainledger.ledger.updates import Parameter
from trainledger.lines.line import Account, Line
from trainledger.plan.schema import Plan

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates


def steps_on_host(plan: Plan) -> bool:
    """Whether torchao's optimizer steps a plan of one device on the host."""
    known = plan.stack.framework in HOST_STEP.frameworks
    return known and plan.parallel.strategy == "none" and plan.offload.optimizer == "cpu"


def frees_gradients(plan: Plan) -> bool:
    """Whether gradients leave the device as they come."""
    return steps_on_host(plan) and bool(plan.optimizer.options.get(FREED))


def smallest_of(plan: Plan) -> int:
    """Elements that a parameter has at least that is stepped on the host."""
    given = plan.optimizer.options.get(SMALLEST)
    return HOST_STEP.smallest if given is None else int(given)


class HostStepped(Layout):
    """Everything whole on the device but what the optimizer keeps; `smallest`: elements of a parameter from which on it
    is stepped on the host."""

    def __init__(self, job: Job, how: tuple[Schedule, Stored], updates: Updates, smallest: int) -> None:
        super().__init__(job, *how)
        self.by, self.smallest = updates, smallest

    @property
    def updated(self) -> tuple[Parameter, ...]:
        """What is stepped on the device: small parameters."""
        return tuple(one for one in self.parameters if elements(one.weight.dims) < self.smallest)

    def host(self) -> tuple[tuple[Line, int], ...]:
        """Page-locked copies and gradients of the others, and their states."""
        others = [one for one in self.parameters if elements(one.weight.dims) >= self.smallest]
        found = (pair for one in others for pair in self._kept(one))
        return (*super().host(), *((replace(line, source=HOST_STEP.source), count) for line, count in found))

    def _kept(self, one: Parameter) -> Iterator[tuple[Line, int]]:
        size = elements(one.weight.dims)
        for account, name in ((Account.WEIGHTS, one.name), (Account.GRADIENTS, f"gradient of {one.name}")):
            yield host_line(account, name, size, one.dtype, True), one.count
        for state in state_bytes(self.by.row, one.weight.shape, one.dtype, self.by.options(one.weight)):
            if state.kind is not Kind.STEP:
                name = f"{state.kind.value} {state.part.value} of {one.name}"
                yield host_line(Account.OPTIMIZER, name, state.elements, state.dtype), one.count
