"""A shorter way to results that the fake mode gave before: same operation, same shapes, same result.

The fake mode's own memory asks for everything that a compiler must tell apart; here every tensor is strided and lies at
one label, so dtype, shape and strides of the arguments are enough. What is not plain goes the mode's whole way.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

NEW, INTO, VIEW, OTHER = "new", "into", "view", "other"
LIFTS = ("lift", "lift_fresh")  # what a mode must see: a constant becomes a tensor
OPEN = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)


class Quick:
    """Runs operations on fake tensors of one mode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._kinds: dict[Any, str] = {}
        self._known: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}

    def __call__(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """What `func` gives in the mode."""
        kind = self._kinds.get(func) or self._kind(func)
        if kind is OTHER:
            return func(*args, **kwargs)
        key: list[Any] = [func]
        if not (_describe(key, args) and (not kwargs or _describe(key, kwargs.items()))):
            return func(*args, **kwargs)
        if kind is VIEW:
            with in_kernel_invocation_manager(self.mode):
                seen = func(*args, **kwargs)
            return FakeTensor(self.mode, seen, args[0].fake_device)
        return self._new(func, (args, kwargs), tuple(key), kind)

    def _new(self, func: Any, given: tuple[Any, Any], key: tuple[Any, ...], kind: str) -> Any:
        args, kwargs = given
        known = self._known.get(key)
        if known is not None:
            if kind is INTO:
                return args[0]
            shape, stride, dtype, device = known
            with torch._C._DisableTorchDispatch():
                empty = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            return FakeTensor(self.mode, empty, device)
        out = func(*args, **kwargs)
        if key not in self._known:
            self._known[key] = _plain(out, args) if kind is NEW else _same(out, args)
        return out

    def _kind(self, func: Any) -> str:
        kind = self._kinds[func] = kind_of(func)
        return kind


def kind_of(func: Any) -> str:
    """Whether an operation makes one new tensor, writes into its first argument, or looks at it otherwise."""
    schema = getattr(func, "_schema", None)
    if schema is None or func.namespace != "aten" or any(tag in func.tags for tag in OPEN):
        return OTHER
    results = schema.returns
    if len(results) != 1 or str(results[0].type) != "Tensor" or func.name().split("::")[-1].split(".")[0] in LIFTS:
        return OTHER
    written = [n for n, argument in enumerate(schema.arguments) if argument.is_write]
    if written:
        return INTO if written == [0] else OTHER
    if results[0].alias_info is None:
        return NEW
    return VIEW if func.is_view else OTHER


def _describe(key: list[Any], values: Any) -> bool:
    """Add to the key what an operation's result depends on; False where a value says more than its shape."""
    for value in values:
        if isinstance(value, FakeTensor):
            if value.constant is not None or value.layout is not torch.strided:
                return False
            key += (value.dtype, value.shape, value.stride())
        elif isinstance(value, torch.Tensor | torch.SymInt):
            return False
        elif isinstance(value, list | tuple):
            key.append(len(value))
            if not _describe(key, value):
                return False
        else:
            key += (type(value), value)
    return True


def _plain(out: Any, args: Any) -> tuple[Any, ...] | None:
    """A new tensor's shape, strides, dtype and device, where these say all of it."""
    if not isinstance(out, FakeTensor) or out.constant is not None or out.layout is not torch.strided:
        return None
    storage = out.untyped_storage()
    shape, stride = tuple(out.shape), tuple(out.stride())
    reach = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if prod(shape) else 0
    if out.storage_offset() or storage.nbytes() != reach * out.element_size():
        return None
    if any(isinstance(one, FakeTensor) and one.untyped_storage()._cdata == storage._cdata for one in args):
        return None
    return shape, stride, out.dtype, out.fake_device


def _same(out: Any, args: Any) -> tuple[Any, ...] | None:
    return () if out is args[0] else None
