"""FSDP2 (`fully_shard`) as one rank of a pretend process group: its buffers, on the streams on which it makes them.

Collectives move nothing. DTensor takes its operations apart above the trace; what it tries out to find shapes is not
part of the run, so the trace looks away meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group, _fully_shard
from torch.distributed.tensor import _sharding_prop
from torch.utils._python_dispatch import _disable_current_modes

from trainledger.evidence.trace.live.dtypes import TORCH
from trainledger.evidence.trace.live.ledger import StorageLedger
from trainledger.evidence.trace.live.session import Session
from trainledger.facts.sharding import OWN_UNITS
from trainledger.facts.trainer import TRAINER_BATCH
from trainledger.facts.versions import at_least
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD
from trainledger.plan.schema import Plan

GATHERED = "unsharded weights"
PRETEND = "fake"  # the process group's back end
MESH = "_get_post_forward_mesh_info"  # makes the groups that keep weights between forward and backward


@contextmanager
def pretend_ranks(world: int) -> Iterator[Any]:
    """A mesh of that many ranks, of which this is the first."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group(PRETEND, rank=0, world_size=world, store=FakeStore())
    try:
        yield dist.init_device_mesh("cpu", (world,))
    finally:
        dist.destroy_process_group()


def shard(plan: Plan, model: Any, mesh: Any) -> None:
    """Shard every layer, then the rest, as training scripts do: the blocks that the model says are not to be split,
    where they stand in a list (an embedding that is one may share its weight with the head); where accelerate does so,
    embedding and head by themselves."""
    precision = plan.precision
    kept = all(one.dtype == TORCH[precision.compute] for one in model.parameters() if one.is_floating_point())
    policy = MixedPrecisionPolicy(
        param_dtype=None if kept else TORCH[precision.compute],
        reduce_dtype=TORCH[precision.reduce] if precision.reduce and precision.reduce != precision.compute else None,
    )
    how = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": plan.parallel.reshard_after_forward}
    names = getattr(model, "_no_split_modules", None) or ()
    for layers in [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]:
        for module in layers:
            if type(module).__name__ in names:
                fully_shard(module, **how)
    words, head = model.get_input_embeddings(), model.get_output_embeddings()
    if _apart(plan) and head is not None and head.weight is not words.weight:
        fully_shard(words, **how)
        fully_shard([*_last_norm(model, words), head], **{**how, "reshard_after_forward": False})
    fully_shard(model, **how)


def _apart(plan: Plan) -> bool:
    release = plan.stack.versions.get(OWN_UNITS.package)
    return bool(release) and at_least(release, OWN_UNITS.since)


def _last_norm(model: Any, words: Any) -> list[Any]:
    """The norm that stands beside the embedding, where the layers do."""
    inner = next(one for one in model.modules() if words in one.children())
    return [one for one in inner.children() if "Norm" in type(one).__name__][-1:]


def waits(plan: Plan) -> bool:
    """Whether gradients are reduced in a step's last micro-batch only: as said, or as accelerate does."""
    given = plan.parallel.options.get("no_sync")
    return TRAINER_BATCH.package in plan.stack.versions if given is None else bool(given)


@contextmanager
def watched(session: Session) -> Iterator[None]:
    """While it lasts the session sees what FSDP2 does beside operations: storages that grow and shrink, streams."""
    with ExitStack() as stack:
        for module in (_fsdp_param, _fsdp_param_group):
            for name in ("alloc_storage", "free_storage"):
                if hasattr(module, name):
                    stack.enter_context(_replaced(module, name, _resizing(session, getattr(module, name))))
        if hasattr(_fully_shard, MESH):
            stack.enter_context(_replaced(_fully_shard, MESH, _outside(getattr(_fully_shard, MESH))))
        owner, method = _sharding_prop.ShardingPropagator, "_propagate_tensor_meta_non_cached"
        stack.enter_context(_replaced(owner, method, _unseen(session, getattr(owner, method))))
        stack.enter_context(_replaced(torch.cpu, "stream", _streams(session)))
        yield


@contextmanager
def _replaced(owner: Any, name: str, new: Any) -> Iterator[None]:
    was = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, was)


def _resizing(session: Session, resize: Callable[[Any], None]) -> Callable[[Any], None]:
    def run(tensor: Any) -> None:
        ledger, watcher = session.ledger, session.watcher
        if watcher is None or watcher.paused:
            return resize(tensor)
        _gathered(ledger, ledger.number(tensor))
        resize(tensor)
        number = ledger.see(tensor, GATHERED, watcher.stack[-1] if watcher.stack else "")
        _gathered(ledger, number)
        return None

    return run


def _gathered(ledger: StorageLedger, number: int) -> None:
    """A storage that FSDP2 gives and takes bytes is that of weights in whole, for as long as they are read."""
    if number >= 0:
        birth = ledger.births[number]
        work = Account.BACKWARD if birth.phase == BACKWARD else Account.FORWARD
        ledger.settle(number, work.value, again=True)
        ledger.labels[number] = (birth.module, GATHERED)


def _outside(run: Callable[..., Any]) -> Callable[..., Any]:
    """Groups of ranks are made of real numbers."""

    def made(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return run(*args, **kwargs)

    return made


def _unseen(session: Session, find: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with session.unseen():
            return find(*args, **kwargs)

    return run


def _streams(session: Session) -> Callable[[Any], Any]:
    numbers: dict[int, int] = {}
    kept: list[Any] = []

    @contextmanager
    def stream(which: Any) -> Iterator[None]:
        was = session.ledger.stream
        if id(which) not in numbers:
            numbers[id(which)] = 0 if which is torch.cpu.current_stream() else len(numbers) + 1
            kept.append(which)
        session.ledger.stream = numbers[id(which)]
        try:
            yield
        finally:
            session.ledger.stream = was

    return stream
