"""What makes tensors under a CPU's label cost what CUDA tensors would: small named passes.

- attention: see `attention`.
- dropout: CUDA calls native_dropout (a bool mask, 1 B an element); a CPU makes a mask in the input's dtype.
- layer_norm: CUDA keeps mean and rstd in fp32 for 16-bit input; a CPU keeps them in the parameters' dtype.
- rms_norm: from torch 2.8 on CUDA has _fused_rms_norm (saves rstd in fp32); a CPU decomposes it.
- softmax: of fp16 into fp32, CUDA converts inside the kernel (no fp32 copy); not for bf16.
- autocast: CUDA's lists differ from a CPU's: see `autocast`.
- gradients: silu and mish have a backward kernel on CUDA; under this label they have one too.
- foreach: CUDA is among the devices whose optimizers run by foreach kernels when nothing is said.
- grouped products (experts): of any float dtype, where the shape rule for tensors without storage takes bf16 alone.
- masks: Transformers takes tensors without storage for a graph capture and builds masks; here it does not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from trainledger.evidence.trace.live import attention, autocast
from trainledger.evidence.trace.live.attention import AttentionSite
from trainledger.evidence.trace.live.dtypes import dtype_of
from trainledger.facts.dtypes import BOOL, FP32, INT32
from trainledger.facts.kernel_sets import UNKNOWN_DEVICE, Multiprocessors
from trainledger.facts.versions import at_least
from trainledger.lines.kernel_work import Work, column_sum, embedding_backward, norms

aten = torch.ops.aten
FUSED_RMS = "2.8"


def layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Output in the input's dtype; mean and rstd in fp32, one each a row."""
    rows = (*x.shape[: x.dim() - len(shape)], *([1] * len(shape)))
    return _contiguous(x), torch.empty(rows, dtype=_wide(x)), torch.empty(rows, dtype=_wide(x))


def layer_norm_backward(grad: Any, x: Any, *rest: Any) -> Any:
    """Gradients of the input and, where wanted, of weight and bias. Arguments: as the operation's schema has them."""
    *_, weight, bias, wanted = rest
    return _gradients((x, weight, bias), wanted)


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """The fused kernel where weight and input have one dtype; a composite otherwise."""
    if weight is not None and weight.dtype != x.dtype:
        wide = x.float()
        rstd = torch.rsqrt(wide.pow(2).mean(list(range(-len(shape), 0)), keepdim=True) + (eps or 0.0))
        return (wide * rstd).to(x.dtype) * weight
    return FusedRmsNorm.apply(x, weight, shape, eps)


class FusedRmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """The kernel as autograd has it on CUDA; under a CPU's label it would be taken apart above the dispatch mode."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, shape: Any, eps: float | None) -> Any:
        """Saves input, weight and rstd."""
        with torch._C._AutoDispatchBelowAutograd():
            out, rstd = aten._fused_rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        ctx.normalized = shape
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of input and weight."""
        x, weight, rstd = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[: len((x, weight))])
        with torch._C._AutoDispatchBelowAutograd():
            found = aten._fused_rms_norm_backward(grads[0], x, ctx.normalized, rstd, weight, wanted)
        return (*found, None, None)


def fused_rms_norm(x: Any, shape: Any, weight: Any, eps: float | None) -> Any:
    """Output, and rstd in fp32, one a row."""
    rows = (*x.shape[: x.dim() - len(shape)], *([1] * len(shape)))
    return _contiguous(x), torch.empty(rows, dtype=_wide(x))


def fused_rms_norm_backward(grad: Any, x: Any, *rest: Any) -> Any:
    """Gradients of the input and, where wanted, of the weight. Arguments: as the operation's schema has them."""
    *_, weight, wanted = rest
    return _gradients((x, weight), wanted)


def _contiguous(x: Any, dtype: Any = None) -> Any:
    """What a kernel makes that lays its result out anew, whatever the layout of its input."""
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _gradients(like: tuple[Any, ...], wanted: Any) -> tuple[Any, ...]:
    """Gradients of a norm's input and parameters. Source: aten/src/ATen/native/cuda/layer_norm_kernel.cu (v2.13)."""
    return tuple(_contiguous(t) if want and t is not None else None for t, want in zip(like, wanted, strict=True))


def _wide(x: Any) -> Any:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def dropout(x: Any, p: float, train: bool) -> Any:
    """native_dropout when there is something to drop."""
    if train and 0 < p < 1 and x.numel():
        return aten.native_dropout(x, p, train)[0]
    if not train or p == 0 or not x.numel():
        return x
    return x.mul(torch.zeros((), dtype=x.dtype))


def softmax(name: str) -> Callable[..., Any]:
    """softmax or log_softmax with a dtype: fp16 into fp32 is one kernel."""
    inner = getattr(aten, "_" + name).default

    def run(x: Any, dim: int, dtype: Any = None) -> Any:
        if x.dtype is torch.float16 and dtype is torch.float32:
            return inner(x, dim, True)
        return inner(x if dtype is None else x.to(dtype), dim, False)

    return run


def _softmax(x: Any, dim: int, wide: bool) -> Any:
    return _contiguous(x, torch.float32 if wide else x.dtype)


def _softmax_backward(grad: Any, out: Any, dim: int, dtype: Any) -> Any:
    return _contiguous(grad, dtype)


def grouped_product(a: Any, b: Any, offsets: Any = None, bias: Any = None, dtype: Any = None) -> Any:
    """Matrices multiplied by group, which `offsets` end: [rows, in] x [groups, in, out], or its gradients' products.

    Of any float dtype, as on a device; PyTorch's rule of shapes takes bf16 alone. Source:
    aten/src/ATen/native/GroupedMMUtils.h, create_grouped_gemm_output_tensor (v2.13).
    """
    groups = (a.shape[:-2] or offsets.shape) if a.dim() == b.dim() else ()
    return torch.empty((*groups, a.shape[-2], b.shape[-1]), dtype=dtype or a.dtype)


def handlers(site: AttentionSite) -> Mapping[Any, Callable[..., Any]]:
    """Operations to make otherwise than a CPU's own kernel would, seen below autograd."""
    return {
        **attention.handlers(site),
        aten.native_layer_norm.default: layer_norm,
        aten.native_layer_norm_backward.default: layer_norm_backward,
        aten._fused_rms_norm.default: fused_rms_norm,
        aten._fused_rms_norm_backward.default: fused_rms_norm_backward,
        aten._softmax.default: _softmax,
        aten._log_softmax.default: _softmax,
        aten._softmax_backward_data.default: _softmax_backward,
        aten._log_softmax_backward_data.default: _softmax_backward,
        aten._grouped_mm.default: grouped_product,
    }


Inside = Callable[[str, Any, Any], tuple[Work, ...]]


def insides(site: AttentionSite, device: Multiprocessors = UNKNOWN_DEVICE) -> Inside:
    """Temporaries inside the kernel of an operation, from its name, arguments and result."""

    def inside(name: str, args: Any, out: Any) -> tuple[Work, ...]:
        if name.startswith("_scaled_dot"):
            return attention.insides(site, name, args, device.count)
        if name == "embedding_dense_backward":
            return embedding_backward(args[1].numel(), args[0].shape[-1], args[2])
        if name == "_softmax_backward_data":
            return (Work("gradient times result", args[0].numel(), dtype_of(args[0].dtype)),)
        if name == "_safe_softmax":
            count = args[0].numel()
            return (Work("before masked rows are cleared", count, dtype_of(out.dtype)), Work("rows", count, BOOL))
        if name.startswith("_foreach_norm"):
            return norms(max(one.numel() for one in args[0]), len(args[0]))
        if name == "sum.dim_IntList" and (rows := _rows(args[0], args[1])):
            partial, blocks = column_sum(rows, args[0].numel() // rows, device)
            return (Work("partial sums", partial, FP32), Work("counters", blocks, INT32)) if partial else ()
        return ()

    return inside


def _rows(whole: Any, dims: Sequence[int]) -> int:
    """How many rows a sum over the leading dims adds up, which lie behind one another; 0 where it is another sum."""
    leading = tuple(range(len(dims)))
    fits = 0 < len(dims) < whole.dim() and tuple(dims) == leading and whole.is_contiguous()
    return math.prod(whole.shape[: len(dims)]) if fits else 0


@contextmanager
def like_cuda(site: AttentionSite) -> Iterator[None]:
    """Registers the replacements at the label's keys for as long as it lasts."""
    library = torch.library.Library("aten", "IMPL")
    above: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": attention.sdpa(site), "dropout": dropout}
    if at_least(site.torch, FUSED_RMS):
        above["rms_norm"] = rms_norm
    for name in ("softmax", "log_softmax"):
        above[name + ".int"] = softmax(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are overridden is what is wanted
        for name, function in above.items():
            library.impl(name, function, "AutogradCPU")
        autocast.register(library)
    try:
        yield
    finally:
        library._destroy()


@contextmanager
def foreach_by_default() -> Iterator[None]:
    """Optimizers and clipping that are told nothing run by foreach kernels, as on CUDA; on a CPU they would loop."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    was = [(module, module._get_foreach_kernels_supported_devices) for module in (optimizer, _foreach_utils)]
    lists = (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    for module, devices in was:
        module._get_foreach_kernels_supported_devices = lambda devices=devices: [*devices(), "cpu"]
    for types in lists:
        types.append(FakeTensor)
    try:
        yield
    finally:
        for module, devices in was:
            module._get_foreach_kernels_supported_devices = devices
        for types in lists:
            types.remove(FakeTensor)


@contextmanager
def no_capture() -> Iterator[None]:
    """Transformers does not take a tensor without storage for a graph capture (it would build attention masks)."""
    import sys

    utils: Any = sys.modules.get("transformers.utils.import_utils")
    if utils is None or not hasattr(utils, "is_fake_tensor"):
        yield
        return
    was = utils.is_fake_tensor
    utils.is_fake_tensor = lambda tensor: False
    try:
        yield
    finally:
        utils.is_fake_tensor = was
