"""A model that is there already, with its optimizer: traced on tensors without storage, and given back as it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Job
from trainledger.evidence.trace.live.auto import Auto
from trainledger.evidence.trace.live.script import Pieces, stepping
from trainledger.evidence.trace.live.selftest import selftest
from trainledger.evidence.trace.live.session import Session, where_of, without_storage
from trainledger.evidence.trace.record import Record
from trainledger.lines.moments import INIT


@dataclass(frozen=True, slots=True)
class Given:
    """What is traced. `optimizer`: one, or a function of the parameters that makes one; `loss`: of output and batch."""

    model: Any
    batch: Any
    optimizer: Any = None
    loss: Callable[..., Any] | None = None
    steps: int = 1 + 1


def trace_model(given: Given, job: Job) -> Record:
    """Trace steps of a model; it and its optimizer are as before afterwards. Raises TraceError, one line."""
    if not isinstance(given.model, torch.nn.Module):
        raise TraceError(f"a torch.nn.Module is needed, found {type(given.model).__name__}")
    selftest()
    session = Session(where_of(job))
    Auto(session)
    with borrowed(given.model, given.optimizer, session.mode), session.running():
        session.enter(INIT)
        session.auto.model = given.model
        session.adopt(given.model)
        optimizer = given.optimizer
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            optimizer = optimizer(given.model.parameters())
        step = stepping(Pieces(given.model, given.batch, optimizer, given.loss), session)
        for _ in range(given.steps):
            step()
        session.finish()
        session.keep((step, optimizer))
    return session.record()


@contextmanager
def recording(job: Job, found: list[Record]) -> Iterator[None]:
    """Trace the code inside, which makes its own model; its record is put into `found`. Raises TraceError."""
    selftest()
    session = Session(where_of(job))
    Auto(session)
    with session.running():
        session.enter(INIT)
        yield
        session.finish()
    found.append(session.record())


@contextmanager
def borrowed(model: Any, optimizer: Any, mode: Any) -> Iterator[None]:
    """While it lasts, the model's and the optimizer's tensors have no storage."""
    tensors = [(module, dict(module._parameters), dict(module._buffers)) for module in model.modules()]
    ours = isinstance(optimizer, torch.optim.Optimizer)
    groups = [list(group["params"]) for group in optimizer.param_groups] if ours else []
    state = optimizer.state if ours else None
    places = {id(one): (module, name) for module, own, _ in tensors for name, one in own.items() if one is not None}
    without_storage(model, mode)
    try:
        if ours:
            for group, params in zip(optimizer.param_groups, groups, strict=True):
                group["params"] = [_taken(places, one) for one in params]
            optimizer.state = defaultdict(dict)
        yield
    finally:
        for module, own, buffers in tensors:
            module._parameters.update(own)
            module._buffers.update(buffers)
        if ours:
            for group, params in zip(optimizer.param_groups, groups, strict=True):
                group["params"] = params
            optimizer.state = state


def _taken(places: dict[int, tuple[Any, str]], one: Any) -> Any:
    if id(one) not in places:
        raise TraceError("the optimizer has a parameter that the model has not")
    module, name = places[id(one)]
    return module._parameters[name]
