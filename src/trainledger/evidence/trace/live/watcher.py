"""The dispatch mode that sees every operation below autograd, and tells the ledger what each one made.

While any mode is active, autograd adds gradients that meet out of place; where a run without one would add in place,
so is it done here (torch/csrc/autograd/input_buffer.cpp, accumulate_grad.h). `calibrate` finds the reference counts
by which the two are told apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainledger.evidence.trace.live.ledger import Seen, StorageLedger
from trainledger.facts.kernel_order import RESULT_ORDER
from trainledger.lines.kernel_work import Work
from trainledger.lines.line import Account

aten = torch.ops.aten
RECOMPUTE = "recompute"
ADD, ITEM, DEVICE = aten.add.Tensor, aten._local_scalar_dense.default, torch.ops.prim.device.default
# What backward formulas (index, topk) write into zeros in place, out of place only because a mode is active.
WRITES_INTO_ZEROS = {
    "index_put": aten.index_put_.default, "scatter.src": aten.scatter_.src, "scatter_add": aten.scatter_add_.default,
}  # fmt: skip
# Where a kernel's order is not that of its results: dropout's mask, cuDNN attention's random state.
MADE_FIRST = {row.operation: row.first for row in RESULT_ORDER}
# Kernels whose random state lies on the host.
HOST = ("_scaled_dot_product_efficient_attention",)
HOST_SCALARS = ("lift_fresh", "scalar_tensor")
ALL_TRUE = ("all", "eq.")


Insides = Callable[[str, Any, Any], tuple[Work, ...]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the watcher is told of the run. `handlers`: operations whose result on a CPU differs from a CUDA device's;
    `insides`: temporaries inside an operation's kernel, from its name, arguments and result; `composite`: whether
    PyTorch's own composite attention is running, which adds its mask in place; `workspace`: bytes of a thread's matrix
    product workspace."""

    handlers: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    insides: Insides = lambda name, args, out: ()
    composite: Callable[[], bool] = lambda: False
    workspace: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """References that a gradient shows in the dispatch mode when autograd's buffer is its only owner."""

    tensor: int
    storage: int
    python: int


class Watcher(TorchDispatchMode):  # type: ignore[misc]
    """Feeds a ledger with what operations make, under the names of the modules that call them."""

    def __init__(self, ledger: StorageLedger, names: Mapping[int, str], hooks: Hooks, counts: Counts) -> None:
        super().__init__()
        self.ledger, self.names, self.hooks, self.counts = ledger, names, hooks, counts
        self.stack: list[str] = []
        self.made_by: dict[int, str] = {}
        self.last = ""
        self.host_scalars = False
        self.counts_on_host = True  # whether an optimizer keeps its count of steps on the host
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.entered: Callable[[Any, str, int], None] = lambda module, name, depth: None
        self.behind: Callable[[bool], None] | None = None  # told of every operation: whether backward makes it
        self.full = True  # whether masks of the batch's tokens hide none
        self.failing = ""
        self.paused = False
        self.run: Callable[[Any, Any, Mapping[str, Any]], Any] = lambda func, args, kwargs: func(*args, **kwargs)
        self._labels: dict[Any, str] = {}
        self._workspaces: set[bool] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and reports what it made."""
        if func is DEVICE:  # asked for far more often than anything is made
            return args[0].fake_device if isinstance(args[0], FakeTensor) else func(*args)
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        if any(issubclass(one, DTensor) for one in types):
            return NotImplemented  # it takes the operation apart, and what is left comes here again
        name = self._labels.get(func) or self._label(func)
        node = torch._C._current_autograd_node()
        label = type(node).__name__ if node is not None else ""
        if label and torch.is_grad_enabled():
            label = RECOMPUTE
        if self.behind is not None:
            self.behind(node is not None)
        module = self._module(node)
        del node
        if func is ITEM:
            return self._answer(args[0], module)
        if func is ADD and (self.hooks.composite() or (summing(label) and self._in_place(*args))):
            return args[0].add_(args[1])
        if name in WRITES_INTO_ZEROS and summing(label):
            return WRITES_INTO_ZEROS[name](*args, **kwargs)  # by an operator: indices may be None
        handler = self.hooks.handlers.get(func)
        out = handler(*args, **kwargs) if handler else self.run(func, args, kwargs)
        self._report(name, out, args, (module, label))
        return out

    def _label(self, func: Any) -> str:
        name = self._labels[func] = str(func).removeprefix("aten.").removesuffix(".default")
        return name

    def _report(self, name: str, out: Any, args: Any, where: tuple[str, str]) -> None:
        ledger, (module, label) = self.ledger, where
        if isinstance(out, torch.Tensor):
            if self.host_scalars and (name in HOST_SCALARS or self._counter(name, out)):
                ledger.ignore(out)
            number = ledger.see(out, name, module, label)
            if name == "_to_copy" and self._casts(args[0], out):
                ledger.settle(number, Account.CASTS.value)
        else:
            for leaf in made_order(name, tree_leaves(out)):
                if isinstance(leaf, torch.Tensor):
                    if leaf.dtype is torch.int64 and name in HOST:
                        ledger.ignore(leaf)
                    ledger.see(leaf, name, module, label)
        if name in MATMULS:
            self._workspace()
        work = self.hooks.insides(name, args, out)
        if work:
            made = [ledger.inside(self._inner(name, one, where)) for one in work]
            for number in made:
                ledger.leave(number)

    def _counter(self, name: str, out: Any) -> bool:
        """Whether an optimizer makes its count of steps, on the host."""
        return name == "zeros" and not out.dim() and self.counts_on_host

    def _inner(self, name: str, work: Work, where: tuple[str, str]) -> Seen:
        module, label = where
        size, dtype = work.dtype.bytes_of(work.elements), work.dtype.name
        return Seen(size, f"kernel: {name} {work.name}", module, label, self.ledger.phase, dtype, (work.elements,))

    def _workspace(self) -> None:
        """The first matrix product of the main and of the autograd thread makes a workspace, which stays."""
        behind = self.ledger.phase == "backward"
        if self.hooks.workspace and behind not in self._workspaces:
            self._workspaces.add(behind)
            size = self.hooks.workspace
            thread = "autograd thread" if behind else "main thread"
            phase = self.ledger.phase
            self.ledger.inside(Seen(size, "cuBLAS workspace", thread, "", phase, "uint8", (size,), "workspace"))

    def _casts(self, source: Any, out: Any) -> bool:
        """Whether a copy is autocast's of a weight: in 16 bits, of one that is wider."""
        if not out.dtype.is_floating_point or out.element_size() >= source.element_size():
            return False
        return self.ledger.accounts.get(self.ledger.number(source)) == Account.WEIGHTS

    def _answer(self, tensor: Any, module: str) -> Any:
        """What `.item()` and `bool()` are told: host counters count one, masks are full where rows are not padded, all
        else is 0 or False."""
        dtype, op = tensor.dtype, ""
        number = self.ledger.number(tensor)
        if number >= 0:
            op = self.ledger.births[number].op
        value: Any = 1 if self.ledger.on_host(tensor) else 0
        if dtype is torch.bool:
            value = op.startswith(ALL_TRUE) and self.full
        elif dtype.is_floating_point:
            value = float(value)
        self.answers[(op or "a value", module, str(value))] += 1
        return value

    def _module(self, node: Any) -> str:
        """In forward the innermost module being called; in backward the one whose call made the running node."""
        if self.stack:
            if torch.is_grad_enabled():
                self.made_by.setdefault(torch.autograd._get_sequence_nr() - 1, self.stack[-1])
            return self.stack[-1]
        if node is not None:
            self.last = self.made_by.get(node._sequence_nr(), self.last)
        return self.last if self.ledger.phase == "backward" else ""

    def _in_place(self, old: Any, new: Any, *rest: Any) -> bool:
        """Whether autograd would add `new` into `old` in place had no mode been active: dense, no view, sole owner."""
        if rest or not isinstance(new, torch.Tensor) or old.shape != new.shape or old._is_view():
            return False
        if not aten.is_non_overlapping_and_dense.default(old):
            return False
        tensor, storage, python = references(old)
        sole = self.counts
        return tensor <= sole.tensor and storage <= sole.storage and python <= sole.python

    @contextmanager
    def modules(self) -> Iterator[None]:
        """Follows module calls; also through a recompute that stops early by an exception."""

        def enter(module: Any, _: Any) -> None:
            self.entered(module, self.names.get(id(module), ""), len(self.stack))
            self.stack.append(self.names.get(id(module), type(module).__name__))

        def leave(module: Any, _: Any, result: Any) -> None:
            if result is None:
                self.failing = self.failing or self.stack[-1]
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


MATMULS = frozenset(("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "convolution"))


def summing(label: str) -> bool:
    """Whether the engine itself may be calling: in backward and not recomputing.

    A node whose own formula adds two gradients looks the same; none that a Transformers model builds does so.
    """
    return bool(label) and not torch.is_grad_enabled()


def references(tensor: Any) -> tuple[int, int, int]:
    """How many own the tensor, its storage and its Python object, as seen from where this is called."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata), getrefcount(tensor)


def made_order(name: str, leaves: list[Any]) -> list[Any]:
    """An operation's results in the order its kernel makes them."""
    first = MADE_FIRST.get(name)
    if first is None:
        return leaves
    return [leaves[n] for n in first] + [leaf for n, leaf in enumerate(leaves) if n not in first]


class _Scale(TorchDispatchMode):  # type: ignore[misc]
    """Notes the references of the first argument of every addition in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ADD and not torch.is_grad_enabled():
            self.found.append(self._ask(*args))
        return func(*args, **(kwargs or {}))

    def _ask(self, old: Any, *rest: Any) -> tuple[int, int, int]:
        """Called as `Watcher._in_place` is, so that the call's own references are the same."""
        return references(old)


def calibrate() -> Counts:
    """The counts of a gradient that only autograd holds. Run inside the fake mode that the trace will use.

    Raises RuntimeError when one that the caller holds too cannot be told apart, so that no trace is made.
    """
    x = torch.empty(4, requires_grad=True)
    kept: list[Any] = []
    with _Scale() as scale:
        z = x.exp()
        (z.sin() + z.cos()).sum().backward()
        alone = scale.found[-1]
        z = x.exp()
        first, second = z.sin(), z.cos()
        second.grad_fn.register_hook(lambda grads, _: kept.append(grads[0]))
        (first + second).sum().backward()
        held = scale.found[-1]
    if not any(more > sole for more, sole in zip(held, alone, strict=True)):
        found = f"{alone} alone, {held} held"
        raise RuntimeError(f"references of gradients cannot be told apart in torch {torch.__version__}: {found}")
    return Counts(*alone)


def local(tensor: Any) -> Any:
    """This rank's part of a tensor that is spread over ranks; any other tensor itself."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor
