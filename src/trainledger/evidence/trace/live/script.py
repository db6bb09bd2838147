"""A user's own code: a function that returns a model, a batch and an optimizer, or a function that makes one step."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Report
from trainledger.evidence.trace.live.auto import Auto
from trainledger.evidence.trace.live.session import BATCH, Session, Where
from trainledger.evidence.trace.record import Record
from trainledger.lines.moments import INIT

STEPS = (1, 1 + 1)
NEEDED = "it must return a model, a batch and an optimizer, or a function that makes one step"


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a script is made of; `step`: a function that makes one whole step by itself."""

    model: Any = None
    batch: Any = None
    optimizer: Any = None
    loss: Callable[..., Any] | None = None
    step: Callable[[], Any] | None = None


def run_script(spec: str, where: Where, report: Report = lambda text: None) -> Record:
    """Trace `FILE:function`. Raises TraceError, one line."""
    function = load(spec)
    session = Session(where, report)
    Auto(session)
    with session.running():
        session.enter(INIT)
        made = pieces_of(function())
        step = made.step or stepping(made, session)
        for _ in STEPS:
            step()
        session.keep((made, step))
        session.finish()
    return session.record()


def load(spec: str) -> Callable[[], Any]:
    """The function that `FILE:function` means. Raises TraceError."""
    path, _, name = spec.rpartition(":")
    file = Path(path)
    if not path or not file.is_file():
        raise TraceError(f"--script {spec}: no such file; FILE:function is needed")
    loaded = importlib.util.spec_from_file_location(file.stem, file)
    if loaded is None or loaded.loader is None:
        raise TraceError(f"--script {spec}: not a Python file")
    module = importlib.util.module_from_spec(loaded)
    sys.modules[file.stem] = module
    sys.path.insert(0, str(file.parent))
    try:
        loaded.loader.exec_module(module)
    except Exception as error:
        raise TraceError(f"--script {spec}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise TraceError(f"--script {spec}: {file.name} has no function {name!r}")
    found: Callable[[], Any] = function
    return found


def pieces_of(made: Any) -> Pieces:
    """What a user's function returned, by type. Raises TraceError."""
    if callable(made) and not isinstance(made, torch.nn.Module):
        return Pieces(step=made)
    parts: list[Any] = list(made.values()) if isinstance(made, Mapping) else []
    parts = parts or (list(made) if isinstance(made, list | tuple) else [made])
    model = next((part for part in parts if isinstance(part, torch.nn.Module)), None)
    optimizer = next((part for part in parts if isinstance(part, torch.optim.Optimizer)), None)
    rest = [part for part in parts if part is not model and part is not optimizer]
    calls = [part for part in rest if callable(part)]
    batches = [part for part in rest if not callable(part)]
    if model is None or not batches:
        raise TraceError(f"the script's function returned {type(made).__name__}: {NEEDED}")
    return Pieces(model, batches[0], optimizer, calls[0] if calls else None)


def stepping(made: Pieces, session: Session) -> Callable[[], Any]:
    """A step of a model on a batch: forward, loss, backward, the optimizer's step."""
    batch = held(made.batch, session)
    kept: list[Any] = []

    def step() -> None:
        if isinstance(batch, Mapping):
            out = made.model(**batch)
        else:
            out = made.model(*(batch if isinstance(batch, list | tuple) else (batch,)))
        loss = made.loss(out, batch) if made.loss is not None else _loss(out)
        del out
        loss.backward()
        kept[:] = [loss]
        if made.optimizer is not None:
            made.optimizer.step()
            made.optimizer.zero_grad(set_to_none=True)
        else:
            made.model.zero_grad(set_to_none=True)
            session.auto.stepped = True

    return step


def held(batch: Any, session: Session) -> Any:
    """A batch whose tensors have no storage and are inputs."""
    if isinstance(batch, Mapping):
        return {name: held_one(name, one, session) for name, one in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(held_one(str(at), one, session) for at, one in enumerate(batch))
    return held_one("0", batch, session)


def held_one(name: str, one: Any, session: Session) -> Any:
    """One tensor of a batch; anything else as it is."""
    if not isinstance(one, torch.Tensor):
        return one
    return session.tensor(f"{BATCH} {name}", tuple(one.shape), one.dtype)


def _loss(out: Any) -> Any:
    loss = getattr(out, "loss", None)
    if loss is None and isinstance(out, Mapping):
        loss = out.get("loss")
    if loss is None and isinstance(out, torch.Tensor):
        loss = out if not out.dim() else out.float().mean()
    if loss is None:
        raise TraceError("the model returns no loss: give labels in the batch, or a loss function")
    return loss
