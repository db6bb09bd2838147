"""Makes CPU tensors cost what CUDA tensors would.

What differs between the two devices as storages go, and what is done about it:

- scaled_dot_product_attention: a CPU has its own flash operation. Overridden at the autograd key (a function mode would
  miss a recompute in an autograd thread): calls the CUDA flash, efficient or cuDNN operation, whose autograd formula
  saves q, k, v, the output and logsumexp; the CPU's flash operation computes the values behind the scenes. Which kernel
  runs follows CUDA's rules (`attention.choose`): flash needs 16 bits and no mask; efficient takes no grouped heads, so
  fp32 weights with grouped heads and no mask end in math. `math` is PyTorch's composite, its mask added in place as
  without a mode.
- dropout: CUDA calls native_dropout (a bool mask, 1 B an element); a CPU makes a mask in the input's dtype.
- native_layer_norm: CUDA keeps mean and rstd in fp32 for 16-bit input; a CPU keeps them in the parameters' dtype.
- rms_norm: CUDA has _fused_rms_norm (saves rstd in fp32); a CPU decomposes it. Transformers' own norms do not call it.
- softmax and log_softmax of fp16 into fp32: CUDA converts inside the kernel (no fp32 copy); not for bf16.
- autocast: the CUDA lists differ from the CPU's. The CUDA fp32 operations are registered at the CPU's autocast key;
  cross_entropy_loss, in the CPU's list only, falls through to log_softmax and nll_loss.
- foreach: CUDA is in the list of devices that default to it, a CPU is not; added to the list while tracing.
- gradients that meet: summed out of place while a mode is active; the ledger does it in place where a run would.
- order of a kernel's results: the ledger knows the two operations whose order is not that of their results.
- host tensors: the efficient kernel's random state, optimizer step counts (not fused) and RNG states stay on the host
  in a CUDA run: no event.
- no difference found: embedding and its dense backward, nll_loss, gelu, silu, addmm, sum, foreach operations.
- experts: histc takes fp32 on a CPU and int32 on CUDA, the same bytes; CUDA's _grouped_mm also pads rows to 16 B.
- not covered: temporaries inside kernels (invisible to dispatch), cuBLAS workspaces, complex dtypes, nested tensors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._foreach_utils as foreach_utils
import torch.utils.checkpoint
from torch.utils._python_dispatch import _disable_current_modes

from tests.witness import attention
from tests.witness.attention import SIXTEEN

aten = torch.ops.aten
FLOATS = (*SIXTEEN, torch.float32)

FP32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm nll_loss nll_loss2d kl_div l1_loss
smooth_l1_loss huber_loss mse_loss logsumexp binary_cross_entropy_with_logits cosine_similarity""".split()
FP32_OUT = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm sum
sum.dim_IntList""".split()
FALL_THROUGH = ("cross_entropy_loss",)


# ---- norms, softmax, dropout


def layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    out, mean, rstd = aten.native_layer_norm(x, shape, weight, bias, eps)
    return out, mean.float(), rstd.float()


def layer_norm_backward(
    grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, wanted: Any
) -> Any:
    dtype = x.dtype if weight is None else weight.dtype
    return aten.native_layer_norm_backward(grad, x, shape, mean.to(dtype), rstd.to(dtype), weight, bias, wanted)


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if weight is not None and weight.dtype != x.dtype:
        return _rms(x, shape, weight, eps)[0]
    return aten._fused_rms_norm(x, shape, weight, eps)[0]


def _rms(x: Any, shape: Any, weight: Any, eps: float | None) -> Any:
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    wide = x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(list(range(-len(shape), 0)), keepdim=True) + eps)
    out = (wide * rstd).to(x.dtype)
    return (out if weight is None else out * weight), rstd


def rms_norm_backward(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, wanted: Any) -> Any:
    leaves = [t if t is None else t.detach().requires_grad_() for t in (x, weight)]
    with torch.enable_grad():
        out = _rms(leaves[0], shape, leaves[1], None)[0]
    grads = torch.autograd.grad(out, [t for t in leaves if t is not None], grad)
    return grads[0], grads[1] if weight is not None else None


def dropout(x: Any, p: float, train: bool) -> Any:
    if train and 0 < p < 1 and x.numel():
        return aten.native_dropout(x, p, train)[0]
    if not train or p == 0 or not x.numel():
        return x
    return x.mul(torch.zeros((), dtype=x.dtype))


def softmax(name: str) -> Callable[..., Any]:
    inner = getattr(aten, "_" + name).default

    def run(x: Any, dim: int, dtype: Any = None) -> Any:
        if x.dtype == torch.float16 and dtype == torch.float32:
            return inner(x, dim, True)
        return inner(x if dtype is None else x.to(dtype), dim, False)

    return run


def half_to_float(name: str) -> Callable[..., Any]:
    inner = getattr(aten, name).default
    return lambda x, dim, wide: inner(x.float() if wide else x, dim, False)


def into_half(name: str) -> Callable[..., Any]:
    inner = getattr(aten, name).default
    return lambda grad, out, dim, dtype: inner(grad, out, dim, out.dtype).to(dtype)


def handlers() -> dict[Any, Callable[..., Any]]:
    """Operations to compute otherwise than by the CPU's own kernel, seen below autograd."""
    return {
        **attention.handlers(),
        aten.native_layer_norm.default: layer_norm,
        aten.native_layer_norm_backward.default: layer_norm_backward,
        aten._fused_rms_norm.default: _rms,
        aten._fused_rms_norm_backward.default: rms_norm_backward,
        aten._softmax.default: half_to_float("_softmax"),
        aten._log_softmax.default: half_to_float("_log_softmax"),
        aten._softmax_backward_data.default: into_half("_softmax_backward_data"),
        aten._log_softmax_backward_data.default: into_half("_log_softmax_backward_data"),
    }


# ---- autocast as CUDA's


def _operation(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(aten, base), overload or "default")


def _below_autocast() -> Any:
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in SIXTEEN else value
    return type(value)(map(_wide, value)) if isinstance(value, (list, tuple)) else value


def _in_fp32(name: str) -> Callable[..., Any]:
    op = _operation(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        with _below_autocast():
            return op(*map(_wide, args), **{k: _wide(v) for k, v in kwargs.items()})

    return run


def _out_fp32(name: str) -> Callable[..., Any]:
    op = _operation(name)
    place = [a.name for a in op._schema.arguments].index("dtype")
    by_name = op._schema.arguments[place].kwarg_only

    def run(*args: Any, **kwargs: Any) -> Any:
        if args[0].dtype in FLOATS:
            if by_name or len(args) <= place:
                kwargs["dtype"] = kwargs.get("dtype") or torch.float32
            else:
                args = (*args[:place], args[place] or torch.float32, *args[place + 1 :])
        with _below_autocast():
            return op(*args, **kwargs)

    return run


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return run


def _register(library: Any, kernel: str) -> None:
    above = {"scaled_dot_product_attention": attention.attention(kernel), "dropout": dropout, "rms_norm": rms_norm}
    for name, function in above.items():
        library.impl(name, function, "AutogradCPU")
    for name in ("softmax", "log_softmax"):
        library.impl(name + ".int", softmax(name), "AutogradCPU")
    for name in FP32:
        library.impl(name, _in_fp32(name), "AutocastCPU")
    for name in FP32_OUT:
        library.impl(name, _out_fp32(name), "AutocastCPU")
    for name in FALL_THROUGH:
        library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")


@contextmanager
def like_cuda(kernel: str) -> Iterator[None]:
    """Registers the replacements for as long as it lasts."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are overridden is what is wanted
        _register(library, kernel)
    devices = foreach_utils._get_foreach_kernels_supported_devices
    states = torch.get_rng_state, torch.set_rng_state
    foreach_utils._get_foreach_kernels_supported_devices = lambda: [*devices(), "cpu"]
    torch.get_rng_state, torch.set_rng_state = map(_on_host, states)
    try:
        yield
    finally:
        foreach_utils._get_foreach_kernels_supported_devices = devices
        torch.get_rng_state, torch.set_rng_state = states
        library._destroy()
