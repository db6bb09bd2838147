"""CUDA's autocast lists, registered at the autocast key of a CPU's label.

Source: aten/src/ATen/autocast_mode.h (v2.4 to v2.13): operations that run in fp32, and those that give fp32 unless told
a dtype. What runs in 16 bits is the same list. Operations in a CPU's list only fall through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from trainledger.evidence.trace.live.dtypes import FLOATS, SIXTEEN

aten = torch.ops.aten
FP32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm nll_loss nll_loss2d kl_div l1_loss
smooth_l1_loss huber_loss mse_loss logsumexp binary_cross_entropy_with_logits cosine_similarity""".split()
FP32_OUT = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm sum
sum.dim_IntList""".split()
FALL_THROUGH = ("cross_entropy_loss",)


def register(library: Any) -> None:
    """Put CUDA's rules into a library of implementations of aten."""
    for name in FP32:
        library.impl(name, _in_fp32(name), "AutocastCPU")
    for name in FP32_OUT:
        library.impl(name, _out_fp32(name), "AutocastCPU")
    for name in FALL_THROUGH:
        library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")


@contextmanager
def asked_of_the_label() -> Iterator[None]:
    """Code that asks whether autocast is on and names no device means CUDA's, which is the label's here."""
    asked = torch.is_autocast_enabled
    with patch.object(torch, "is_autocast_enabled", lambda *device: asked(*device) if device else asked("cpu")):
        yield


def _operation(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def _below() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in SIXTEEN else value
    return type(value)(map(_wide, value)) if isinstance(value, list | tuple) else value


def _in_fp32(name: str) -> Callable[..., Any]:
    op = _operation(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        with _below():
            return op(*map(_wide, args), **{k: _wide(v) for k, v in kwargs.items()})

    return run


def _out_fp32(name: str) -> Callable[..., Any]:
    op = _operation(name)
    place = [argument.name for argument in op._schema.arguments].index("dtype")
    by_name = op._schema.arguments[place].kwarg_only

    def run(*args: Any, **kwargs: Any) -> Any:
        if args[0].dtype in FLOATS:
            if by_name or len(args) <= place:
                kwargs["dtype"] = kwargs.get("dtype") or torch.float32
            else:
                args = (*args[:place], args[place] or torch.float32, *args[place + 1 :])
        with _below():
            return op(*args, **kwargs)

    return run
