"""Attention as CUDA runs it: which kernel is called, and the shapes and layouts that each one returns.

`scaled_dot_product_attention` is overridden at the autograd key of the label (a function mode would miss a recompute
that runs inside backward): it calls CUDA's flash, efficient or cuDNN operation, whose own autograd formula saves what
it saves there. Below autograd those operations make empty tensors of their kernels' shapes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainledger.evidence.trace.live.dtypes import dtype_of
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.kernels_fused import EFFICIENT, FLASH, RANDOM
from trainledger.facts.versions import at_least
from trainledger.lines.kernel_choice import Asked, choose
from trainledger.lines.kernel_work import Shape, Work, attention_backward, attention_forward, flash_forward, up

aten = torch.ops.aten
pad = torch.nn.functional.pad
FORWARD = {
    "_scaled_dot_product_flash_attention": Kernel.FLASH,
    "_scaled_dot_product_efficient_attention": Kernel.EFFICIENT,
    "_scaled_dot_product_cudnn_attention": Kernel.CUDNN,
}
BACKWARD = {f"{name}_backward": kernel for name, kernel in FORWARD.items()}


class AttentionSite:
    """Where attention runs: the plan's word, releases and architecture as in `lines.kernel_choice.Asked`.

    An accumulator: `calls` counts what was called so far, by kernel; `composite`: PyTorch's own composite is running.
    """

    def __init__(
        self, word: str | None = "sdpa", torch: str = "", architecture: str = "", deprioritised: bool = False
    ) -> None:
        self.word, self.torch, self.architecture, self.deprioritised = word, torch, architecture, deprioritised
        self.calls: Counter[str] = Counter()
        self.composite = False

    @property
    def package(self) -> bool:
        """Whether the plan calls the flash-attn package."""
        return self.word == "flash"

    def kernel_of(self, query: Any, value: int, mask: Any, dropout: float, grouped: bool) -> Kernel:
        """The kernel of one call; `value`: the values' head dim."""
        if self.package:
            return Kernel.PACKAGE
        asked = Asked(
            word=self.word,
            dtype=dtype_of(query.dtype),
            head=query.shape[-1],
            mask=mask is not None,
            dropout=dropout,
            grouped=grouped,
            torch=self.torch,
            architecture=self.architecture,
            deprioritised=self.deprioritised,
            value=value,
        )
        return choose(asked).kernel

    @contextmanager
    def composing(self) -> Any:
        """While PyTorch's own composite runs: it adds its mask in place, as it does without a mode."""
        self.composite = True
        try:
            yield
        finally:
            self.composite = False


def sdpa(site: AttentionSite) -> Callable[..., Any]:
    """A replacement of scaled_dot_product_attention that calls what CUDA would."""

    def run(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        given = dict(zip(("attn_mask", "dropout_p", "is_causal"), rest, strict=False)) | named
        mask, dropout, causal = (given.get(name) for name in ("attn_mask", "dropout_p", "is_causal"))
        dropout, causal, scale = dropout or 0.0, bool(causal), given.get("scale")
        grouped = bool(given.get("enable_gqa")) and query.shape[-3] != key.shape[-3]
        kernel = site.kernel_of(query, value.shape[-1], mask, dropout, grouped)
        if not grouped and query.shape[-3] != key.shape[-3] and not site.package:
            kernel = Kernel.MATH  # no other stretches heads
        site.calls[kernel.value] += 1
        mask = additive(mask, query.dtype)
        if mask is not None and kernel is Kernel.EFFICIENT:
            mask = padded(mask, site.torch)  # which takes the place of the other one
        call = Call(site, (query, key, value), mask, dropout, causal)
        if kernel in (Kernel.FLASH, Kernel.PACKAGE):
            return call.flash(scale)
        if kernel is Kernel.CUDNN:
            op = aten._scaled_dot_product_cudnn_attention
            return op(query, key, value, mask, call.needs, dropout, causal, False, scale=scale)[0]
        if kernel is Kernel.EFFICIENT:
            return call.efficient(scale)
        return call.composed(scale, grouped)

    return run


@dataclass(frozen=True, slots=True)
class Call:
    """One call of attention, as its kernel gets it."""

    site: AttentionSite
    qkv: tuple[Any, Any, Any]
    mask: Any
    dropout: float
    causal: bool

    @property
    def needs(self) -> bool:
        """Whether a gradient will be asked for."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.qkv)

    def flash(self, scale: float | None) -> Any:
        """The flash kernel; head dims that it does not take are padded."""
        width = self.qkv[0].shape[-1]
        more, qkv = -width % FLASH.pad, self.qkv
        if more:
            query, key, value = (pad(t, [0, more]) for t in qkv)
            qkv = (query, key, value)
        scale = 1 / math.sqrt(width) if scale is None else scale
        out = aten._scaled_dot_product_flash_attention(*qkv, self.dropout, self.causal, False, scale=scale)[0]
        return out[..., :width] if more else out

    def efficient(self, scale: float | None) -> Any:
        """The memory-efficient kernel; its mask is seen by every head."""
        query, key, value = self.qkv
        mask = None if self.mask is None else self.mask.expand(*query.shape[:-1], key.shape[-2])
        op = aten._scaled_dot_product_efficient_attention
        return op(query, key, value, mask, self.needs, self.dropout, self.causal, scale=scale)[0]

    def composed(self, scale: float | None, grouped: bool) -> Any:
        """PyTorch's own composite of products and a softmax."""
        op = aten._scaled_dot_product_attention_math
        with self.site.composing():
            return op(*self.qkv, self.mask, self.dropout, self.causal, None, scale=scale, enable_gqa=grouped)[0]


def additive(mask: Any, dtype: Any) -> Any:
    """A bool mask as the addend that kernels take."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype))


def padded(mask: Any, release: str) -> Any:
    """The efficient kernel's view of a mask: rows padded to a multiple of as many elements as its release wants."""
    step = EFFICIENT.aligned if at_least(release, EFFICIENT.since) else EFFICIENT.old_aligned
    if mask.stride(-1) == 1 and all(one % step == 0 for one in mask.stride()[:-1]):
        return mask
    width = mask.shape[-1]
    return pad(mask, [0, step - width % step])[..., :width]


def by_token(tensor: Any) -> Any:
    """An empty tensor like one of [batch, heads, sequence, dim], in its own layout, which is mostly token by token."""
    return torch.empty_like(tensor.transpose(1, 2)).transpose(1, 2)


def with_layout(query: Any, width: int) -> Any:
    """An empty tensor in the queries' layout with another head dim (aten/src/ATen/native/cudnn/MHA.cpp,
    alloc_with_matching_layout)."""
    batch, heads, rows, head = query.shape
    if width == head:
        return by_token(query)
    if query.stride(1) > query.stride(2):  # head by head
        return query.new_empty((batch, heads, rows, width))
    return query.new_empty((batch, rows, heads, width)).transpose(1, 2)


def in_order(tensor: Any) -> Any:
    """The same, token by token whatever the layout was (aten/src/ATen/native/transformers/cuda/attention_backward.cu,
    _efficient_attention_backward)."""
    return tensor.new_empty(tensor.transpose(1, 2).shape).transpose(1, 2)


def _random(site: AttentionSite, kernel: Kernel) -> tuple[Any, Any]:
    row = RANDOM.get(kernel)
    parts = row.parts if row and at_least(site.torch, row.since) else ()
    made = [torch.empty(size, dtype=torch.uint64) for size in parts]
    made += [torch.empty(0, dtype=torch.uint64) for _ in range(2 - len(made))]
    return made[0], made[1]


def handlers(site: AttentionSite) -> Mapping[Any, Callable[..., Any]]:
    """CUDA's attention operations on tensors without storage."""

    def flash(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        batch, heads, rows, _width = query.shape
        out, lse = by_token(query), torch.empty((batch, heads, rows), dtype=torch.float32)
        none = query.new_empty(0)
        state = _random(site, Kernel.PACKAGE if site.package else Kernel.FLASH)
        return out, lse, none, none.clone(), rows, key.shape[2], *state, none.clone()

    def flash_backward(grad: Any, *args: Any, **__: Any) -> Any:
        return tuple(by_token(t) for t in args[:3])

    def efficient(query: Any, key: Any, value: Any, *rest: Any, **__: Any) -> Any:
        needs = rest[1]
        batch, heads, rows, _width = query.shape
        lse = torch.empty((batch, heads, up(rows, EFFICIENT.statistics) if needs else 0), dtype=torch.float32)
        out = torch.empty((batch, rows, heads, value.shape[-1]), dtype=query.dtype).transpose(1, 2)
        return out, lse, torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)

    def efficient_backward(grad: Any, *args: Any, **__: Any) -> Any:
        return (*(in_order(t) for t in args[:3]), None)

    def cudnn(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        batch, heads, rows, _width = query.shape
        none, sizes = query.new_empty(0), (rows, key.shape[2])
        seeds = (torch.empty(1, dtype=torch.int64), torch.empty(1, dtype=torch.int64))
        lse = torch.empty((batch, heads, rows, 1), dtype=torch.float32)
        out = with_layout(query, value.shape[-1])
        return out, lse, none, none.clone(), *sizes, *seeds, none.clone()

    made = {"flash": flash, "efficient": efficient, "cudnn": cudnn}
    behind = {"flash": flash_backward, "efficient": efficient_backward, "cudnn": flash_backward}
    return {
        getattr(aten, f"_scaled_dot_product_{name}_attention{suffix}").default: function
        for suffix, table in (("", made), ("_backward", behind))
        for name, function in table.items()
    }


def insides(site: AttentionSite, name: str, args: Any, processors: int = 0) -> tuple[Work, ...]:
    """Temporaries inside an attention kernel, on a device of so many multiprocessors; nothing for another operation."""
    if name in FORWARD:
        if FORWARD[name] is Kernel.FLASH and not site.package:
            return () if any(args[3:4]) else flash_forward(_shape(*args[:3]), site.torch, processors)
        return attention_forward(_shape(*args[:3]), FORWARD[name])
    if name in BACKWARD:
        kernel = BACKWARD[name]
        kernel = Kernel.PACKAGE if site.package and kernel is Kernel.FLASH else kernel
        shape = _shape(*args[1:4])
        work = attention_backward(shape, kernel, site.torch, site.architecture)
        if kernel is Kernel.EFFICIENT and shape.kv_heads != shape.heads:
            wide = shape.batch * shape.heads * shape.keys * shape.head
            work += tuple(Work(f"{side} gradients by query head", wide, shape.dtype) for side in ("key", "value"))
        return work
    return ()


def _shape(query: Any, key: Any, value: Any) -> Shape:
    batch, heads, rows, head = query.shape
    return Shape(batch, heads, key.shape[1], rows, key.shape[2], head, dtype_of(query.dtype), value.shape[-1])
