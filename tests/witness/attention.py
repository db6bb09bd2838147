"""Attention as CUDA runs it: the rules by which a kernel is chosen, and the sizes and layouts each one returns.

The values come from the CPU's flash operation; dropout inside attention is left out of them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
SIXTEEN = (torch.float16, torch.bfloat16)
FLASH_HEAD = 256
EIGHT = 8
EFFICIENT_ALIGN = 32

composite = threading.local()


def choose(kernel: str, query: Any, value: Any, mask: Any, gqa: bool) -> str:
    """The kernel a CUDA device would run when `kernel` is the one it prefers."""
    fused = query.dtype in SIXTEEN and query.shape[-1] == value.shape[-1]
    if kernel == "cudnn" and fused and query.shape[-1] <= FLASH_HEAD and query.shape[-1] % EIGHT == 0:
        return "cudnn"
    if kernel in ("flash", "cudnn") and fused and query.shape[-1] <= FLASH_HEAD and mask is None:
        return "flash"
    if kernel != "math" and not (gqa and query.shape[-3] != value.shape[-3]):
        return "efficient"
    return "math"


def attention(kernel: str) -> Callable[..., torch.Tensor]:
    """A replacement of scaled_dot_product_attention that runs the operations CUDA would."""

    def sdpa(
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        picked = choose(kernel, query, value, mask, enable_gqa)
        mask = additive(mask, query.dtype)
        if picked == "math":
            return math_attention((query, key, value), mask, dropout, causal, scale, enable_gqa)
        needs = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        if picked == "flash":
            width = query.shape[-1]
            scale = 1 / math.sqrt(width) if scale is None else scale
            pad = -width % EIGHT
            if pad:
                query, key, value = (torch.nn.functional.pad(t, [0, pad]) for t in (query, key, value))
            out = aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]
            return out[..., :width] if pad else out
        if picked == "cudnn":
            op = aten._scaled_dot_product_cudnn_attention
            return op(query, key, value, mask, needs, dropout, causal, False, scale=scale)[0]
        if mask is not None:
            mask = aligned(mask).expand(*query.shape[:-1], key.shape[-2])
        op = aten._scaled_dot_product_efficient_attention
        return op(query, key, value, mask, needs, dropout, causal, scale=scale)[0]

    return sdpa


def math_attention(
    qkv: tuple[Any, Any, Any], mask: Any, dropout: float, causal: bool, scale: float | None, gqa: bool
) -> torch.Tensor:
    """PyTorch's own composite; the flag lets the ledger add the mask in place, as it is without a mode."""
    composite.running = True
    try:
        op = aten._scaled_dot_product_attention_math
        return op(*qkv, mask, dropout, causal, None, scale=scale, enable_gqa=gqa)[0]
    finally:
        composite.running = False


def additive(mask: Any, dtype: Any) -> Any:
    """A bool mask as the addend the kernels take."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype))


def aligned(mask: Any) -> Any:
    """The efficient kernel's view of a mask: rows padded to a multiple of 8 elements, then expanded by the caller."""
    if mask.stride(-1) == 1 and all(step % EIGHT == 0 for step in mask.stride()[:-1]):
        return mask
    width = mask.shape[-1]
    return torch.nn.functional.pad(mask, [0, EIGHT - width % EIGHT])[..., :width]


def _values(query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float | None) -> tuple[Any, Any]:
    """Output and logsumexp, computed by the CPU's flash operation."""
    key, value = (spread(t, query.shape[-3]) for t in (key, value))
    op = aten._scaled_dot_product_flash_attention_for_cpu
    return op(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)


def spread(tensor: Any, heads: int) -> Any:
    return tensor if tensor.shape[-3] == heads else tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def like(tensor: Any, values: Any) -> Any:
    """`values` in the layout empty_like gives in the kernel's own order of axes [B, S, H, D]."""
    return torch.empty_like(tensor.transpose(1, 2)).copy_(values.transpose(1, 2)).transpose(1, 2)


def flash(
    query: Any, key: Any, value: Any, dropout: float = 0.0, causal: bool = False, *_: Any, scale: Any = None
) -> Any:
    out, lse = _values(query, key, value, None, causal, scale)
    none, seed = query.new_empty(0), torch.empty(2, dtype=torch.uint64)
    sizes = (query.shape[-2], key.shape[-2])
    return (
        like(query, out),
        lse.contiguous(),
        none,
        none.clone(),
        *sizes,
        seed,
        torch.empty((), dtype=torch.uint64),
        none.clone(),
    )


def flash_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, *rest: Any, scale: Any = None
) -> Any:
    causal = rest[5]
    return _gradients(grad, (query, key, value), (out, lse), None, causal, scale)


def _gradients(grad: Any, qkv: Any, out: Any, mask: Any, causal: bool, scale: Any) -> tuple[Any, Any, Any]:
    query, key, value = qkv
    wide = (query, spread(key, query.shape[-3]), spread(value, query.shape[-3]))
    op = aten._scaled_dot_product_flash_attention_for_cpu_backward
    rows = out[1][..., : query.shape[-2]].contiguous()
    grads = op(grad.contiguous(), *wide, out[0], rows, 0.0, causal, attn_mask=mask, scale=scale)
    folded = [
        g if g.shape == t.shape else g.unflatten(1, (t.shape[1], -1)).sum(2) for g, t in zip(grads, qkv, strict=True)
    ]
    return tuple(like(t, g) for t, g in zip(qkv, folded, strict=True))  # type: ignore[return-value]


def efficient(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    needs: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: Any = None,
) -> Any:
    out, lse = _values(query, key, value, mask, causal, scale)
    rows = -(-query.shape[-2] // EFFICIENT_ALIGN) * EFFICIENT_ALIGN if needs else 0
    padded = torch.zeros((*lse.shape[:-1], rows))
    if rows:
        padded[..., : lse.shape[-1]] = lse
    out = out.transpose(1, 2).contiguous().transpose(1, 2)
    return out, padded, torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64)


def efficient_backward(
    grad: Any, query: Any, key: Any, value: Any, mask: Any, out: Any, lse: Any, *rest: Any, **kw: Any
) -> Any:
    mask = mask if mask is not None and mask.numel() else None
    causal = rest[4] if len(rest) > EIGHT // 2 else kw.get("is_causal", False)
    return (*_gradients(grad, (query, key, value), (out, lse), mask, causal, kw.get("scale")), None)


def cudnn(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    needs: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *_: Any,
    scale: Any = None,
) -> Any:
    out, lse = _values(query, key, value, mask, causal, scale)
    none, sizes = query.new_empty(0), (query.shape[-2], key.shape[-2])
    seeds = (torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.int64))
    return like(query, out), lse.contiguous().unsqueeze(-1), none, none.clone(), *sizes, *seeds, none.clone()


def cudnn_backward(
    grad: Any, query: Any, key: Any, value: Any, out: Any, lse: Any, *rest: Any, scale: Any = None
) -> Any:
    mask = rest[2] if rest[2] is not None and rest[2].numel() else None
    return _gradients(grad, (query, key, value), (out, lse.squeeze(-1)), mask, rest[8], scale)


def handlers() -> dict[Any, Callable[..., Any]]:
    """The CUDA attention operations, computed on a CPU."""
    return {
        aten._scaled_dot_product_flash_attention.default: flash,
        aten._scaled_dot_product_flash_attention_backward.default: flash_backward,
        aten._scaled_dot_product_efficient_attention.default: efficient,
        aten._scaled_dot_product_efficient_attention_backward.default: efficient_backward,
        aten._scaled_dot_product_cudnn_attention.default: cudnn,
        aten._scaled_dot_product_cudnn_attention_backward.default: cudnn_backward,
    }
