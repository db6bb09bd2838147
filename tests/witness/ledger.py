"""Records the birth and death of every storage while real code runs.

A dispatch mode sees every operation below autograd. Each new storage gets a weak reference, whose callback is called at
the moment the last owner lets go. Nothing here keeps a tensor alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BLOCK = 512


def rounded(size: int) -> int:
    """Bytes a caching allocator hands out for a request of `size` bytes (sign kept): whole blocks of 512."""
    blocks = -(-abs(size) // BLOCK) * BLOCK
    return blocks if size >= 0 else -blocks


@dataclass(frozen=True)
class Event:
    """One birth (size > 0) or death (size < 0) of a storage, raw bytes; a death repeats what its birth said."""

    size: int
    op: str
    module: str
    phase: str
    key: int
    step: int = 0
    node: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""


@dataclass
class Ledger:
    """The ordered events, and what lives now."""

    events: list[Event] = field(default_factory=list)
    live: dict[int, Event] = field(default_factory=dict)
    phase: str = "build"
    step: int = 0
    bytes: int = 0
    closed: bool = False
    _known: dict[int, tuple[int, Any]] = field(default_factory=dict)
    _next: int = 0

    def see(self, tensor: torch.Tensor, op: str, module: str, node: str = "") -> None:
        """Records a birth if the tensor's storage was never seen; a change of size if it was resized."""
        storage = tensor.untyped_storage()
        size, place = storage.nbytes(), storage._cdata
        if place in self._known:
            key = self._known[place][0]
            old = self.live.get(key)
            if old is not None and old.size != size:
                self._death(key)
                self._birth(Event(size, op, module, self.phase, key, self.step, node))
            return
        if size == 0:
            return
        key, self._next = self._next, self._next + 1
        self._known[place] = (key, weakref.ref(storage, lambda _, k=key, p=place: self._gone(k, p)))
        dtype = str(tensor.dtype).removeprefix("torch.")
        self._birth(Event(size, op, module, self.phase, key, self.step, node, tuple(tensor.shape), dtype))

    def ignore(self, tensor: torch.Tensor) -> None:
        """Marks a storage as one a real run keeps on the host: it gives no event."""
        storage = tensor.untyped_storage()
        place = storage._cdata
        if place not in self._known:
            self._known[place] = (-1, weakref.ref(storage, lambda _, p=place: self._known.pop(p, None)))

    def _birth(self, event: Event) -> None:
        self.events.append(event)
        self.live[event.key] = event
        self.bytes += event.size

    def _death(self, key: int) -> None:
        born = self.live.pop(key)
        self.bytes -= born.size
        end = Event(-born.size, born.op, born.module, self.phase, key, self.step, born.node, born.shape, born.dtype)
        self.events.append(end)

    def _gone(self, key: int, place: int) -> None:
        self._known.pop(place, None)
        if key in self.live and not self.closed:
            self._death(key)


Handler = Callable[..., Any]


def summing(label: str) -> bool:
    """Whether the engine itself may be calling, in backward and not recomputing.

    A node whose own formula adds two gradients looks the same; none that a Transformers model builds does so.
    """
    return bool(label) and not torch.is_grad_enabled()


def in_place(old: Any, new: Any, *rest: Any) -> bool:
    """Whether autograd would add `new` into `old` in place had no mode been active: dense, no view, its only owner.

    The two counts are what a tensor shows in here when the engine's buffer is its only owner: the tensor itself and
    the call's own three references; the storage's tensor and the wrapper made to ask.
    """
    if rest or not isinstance(new, torch.Tensor) or old.shape != new.shape or old._is_view():
        return False
    if not torch.ops.aten.is_non_overlapping_and_dense.default(old):
        return False
    return old._use_count() <= SOLE_TENSOR and torch._C._storage_Use_Count(old.untyped_storage()._cdata) <= SOLE_STORAGE


RECOMPUTE = "recompute"
# What backward formulas (index, topk) write into zeros in place, out of place only because a mode is active.
WRITES_INTO_ZEROS = {"index_put": "index_put_", "scatter.src": "scatter_"}
SOLE_TENSOR = 4
SOLE_STORAGE = 2


class Watcher(TorchDispatchMode):
    """Feeds the ledger; `handlers` replace operations whose result on a CPU differs from a CUDA device's."""

    def __init__(
        self, ledger: Ledger, names: dict[int, str], handlers: dict[Any, Handler], adds_in_place: Callable[[], bool]
    ) -> None:
        super().__init__()
        self.ledger, self.names, self.handlers, self.adds_in_place = ledger, names, handlers, adds_in_place
        self.stack: list[str] = []
        self.made_by: dict[int, str] = {}
        self.last = ""
        self.host_scalars = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        node = torch._C._current_autograd_node()
        name = str(func).removeprefix("aten.").removesuffix(".default")
        label = type(node).__name__ if node is not None else ""
        if label and torch.is_grad_enabled():
            label = RECOMPUTE
        module = self._module(node)
        del node
        if name == "add.Tensor" and (self.adds_in_place() or (summing(label) and in_place(*args))):
            return args[0].add_(args[1])
        if name in WRITES_INTO_ZEROS and summing(label):
            return getattr(args[0], WRITES_INTO_ZEROS[name])(*args[1:], **kwargs)
        handler = self.handlers.get(func)
        out = handler(*args, **kwargs) if handler else func(*args, **kwargs)
        for leaf in made_order(name, tree_leaves(out)):
            if isinstance(leaf, torch.Tensor):
                if (self.host_scalars and name.startswith("lift_fresh")) or (
                    leaf.dtype is torch.int64 and name in HOST
                ):
                    self.ledger.ignore(leaf)
                self.ledger.see(leaf, name, module, label)
        return out

    def _module(self, node: Any) -> str:
        """In forward the innermost module being called; in backward the one whose call made the running node."""
        if self.stack:
            if torch.is_grad_enabled():
                self.made_by.setdefault(torch.autograd._get_sequence_nr() - 1, self.stack[-1])
            return self.stack[-1]
        if node is not None:
            self.last = self.made_by.get(node._sequence_nr(), self.last)
        return self.last if self.ledger.phase == "backward" else ""

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Follows module calls; also through a recompute that stops early by an exception."""

        def enter(module: torch.nn.Module, _: Any) -> None:
            self.stack.append(self.names.get(id(module), type(module).__name__))

        def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
            self.stack.pop()

        hooks = [
            module_hooks.register_module_forward_pre_hook(enter),
            module_hooks.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def made_order(name: str, leaves: list[Any]) -> list[Any]:
    """An operation's results in the order its kernel makes them."""
    first = MADE_FIRST.get(name, ())
    return [leaves[n] for n in first] + [leaf for n, leaf in enumerate(leaves) if n not in first]


# Where a kernel's order is not that of its results: dropout's mask, cuDNN attention's random state.
MADE_FIRST = {"native_dropout": (1,), "_scaled_dot_product_cudnn_attention": (6, 7)}
# The efficient kernel returns its random state on the host.
HOST = ("_scaled_dot_product_efficient_attention",)
