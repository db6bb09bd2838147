"""The flash-attn package as Transformers calls it: no mask is built without padding, grouped heads are handed over.

Registered under a name of its own by Transformers' attention interface; the package itself is not needed.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "traced_package"  # Transformers loads a kernel for any name with "flash" in it


def register() -> str:
    """The name to give as the attention implementation."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, no_mask)
    return NAME


def no_mask(*_: Any, **__: Any) -> None:
    """Without padding the kernel needs no mask: it is causal, or has a window, by itself."""
    return


def forward(module: Any, query: Any, *rest: Any, **named: Any) -> tuple[Any, None]:
    """Attention of [batch, heads, sequence, head dim], keys and values after the queries; the result lies token by
    token."""
    key, value = rest[: len(("key", "value"))]
    width, narrow = query.shape[-1], value.shape[-1]
    if narrow != width:  # as integrations/flash_attention.py pads them for the kernel, and crops its result
        value = torch.nn.functional.pad(value, [0, width - narrow])
    causal = named.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    out = torch.nn.functional.scaled_dot_product_attention(
        query,
        key,
        value,
        dropout_p=named.get("dropout", 0.0),
        is_causal=bool(causal) and query.shape[2] > 1,
        scale=named.get("scaling"),
        enable_gqa=True,
    )
    if narrow != width:
        out = out[..., :narrow]
    return out.transpose(1, 2).contiguous(), None
