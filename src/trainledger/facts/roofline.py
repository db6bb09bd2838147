"""What the estimate of a step's time takes for granted: shares of peaks that kernels reach, and published counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Basis, Source
from trainledger.base.units import KB


@dataclass(frozen=True, slots=True)
class Assumption:
    """A number that the time rests on, in words for the answer."""

    name: str
    value: float
    says: str
    source: Source
    basis: Basis = Basis.ASSUMED


OWN = Source(
    "trainledger's own assumption",
    "round numbers; published runs are compared with what follows, not fitted",
    "2026-11",
)
PRODUCT = Assumption("matrix products", 0.75, "matrix products reach {:.0%} of the device's dense peak", OWN)
PRODUCT_LOW = Assumption(
    "matrix products in 8 bits", 0.6, "those in 8 bits, with the casts around them, reach {:.0%} of theirs",
    Source("1.6 times as fast as in 16 bits; torchao's float8 steps of Llama-3.1-70B were 1.34 to 1.5 times as fast",
           "docs.pytorch.org/ao, pretraining; github.com/pytorch/ao, README.md", "2025"),
)  # fmt: skip
ATTENTION = Assumption(
    "attention", 0.5, "attention reaches {:.0%} of the 16-bit peak",
    Source("FlashAttention-2 reaches 35 % on H100, FlashAttention-3 up to 75 %; 430 to 621 TFLOP/s by length with head "
           "128", "arXiv:2407.08608, abstract; github.com/pytorch/benchmark/pull/2391", "2024-07"),
)  # fmt: skip
MEMORY = Assumption(
    "memory", 0.85, "element-wise kernels and the optimizer reach {:.0%} of the memory's bandwidth", OWN
)
LINKS = Assumption(
    "links", 0.75, "collectives reach {:.0%} of a link's one-way bandwidth",
    Source("H100: 370 of NVLink's 450 GB/s with its protocol's overhead; A100: about 200 of 300 GB/s measured",
           "github.com/NVIDIA/nccl-tests/issues/212 and 149", "2024-05"),
)  # fmt: skip
CAUSAL = Assumption(
    "causal", 0.5, "causal attention computes {:.0%} of the score matrix",
    Source("FlashAttention", "arXiv:2307.08691, section 3.1.1", "2023-07"), Basis.PUBLISHED,
)  # fmt: skip
LAUNCH = Assumption("latency", 20e-6, "each collective costs at least {:.0e} s", OWN)
HOST = Assumption("host", 25e9, "activations go to the host, and back, at {:.2g} bytes a second and device", OWN)
ASSUMPTIONS = (PRODUCT, PRODUCT_LOW, ATTENTION, MEMORY, LINKS, CAUSAL, LAUNCH, HOST)


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one layer. A product makes `product` operations for each element of its weight and each token forward,
    `backward` times that backward, `frozen` times where the weight is not trained; scores and values `product` each for
    each pair of tokens, `attention_backward` times that backward (scores are made again). Passes of 16-bit tensors
    through memory forward: `norm` of the hidden width for a norm, `residual` for bias, dropout and sum, `turned` of
    queries and keys, `gate` of the inner width, `sent` of the hidden width for each expert of a token;
    `element_backward` times that backward."""

    product: int
    backward: int
    frozen: int
    attention_backward: float
    norm: int
    residual: int
    turned: int
    gate: int
    sent: int
    element_backward: int
    source: Source


WORK = Work(
    2, 2, 1, 2.5, 2, 3, 2, 3, 4, 2,
    Source("Operations of a layer", "arXiv:2205.05198, appendix A; arXiv:2307.08691, section 4.1; a kernel reads its "
           "inputs once and writes its output once", "2023-07"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traffic:
    """What ranks exchange, in multiples of a tensor. `sums`: gathers and scatters of a layer's hidden states over tp
    forward, as many backward; `exchanges`: sendings to experts and back, forward, as many backward; `ring`: keys and
    values; `ring_backward`: times that backward; `gathers`: of sharded weights in a micro-batch (forward, backward);
    `passed`: sendings between stages for each micro-batch (hidden states, their gradient); `reduce`: passes of an
    all-reduce (scatter, gather)."""

    sums: int
    exchanges: int
    ring: int
    ring_backward: int
    gathers: int
    passed: int
    reduce: int
    source: Source


TRAFFIC = Traffic(
    4, 2, 2, 2, 2, 2, 2,
    Source("Collectives of a layer and a step", "arXiv:2205.05198, section 4.2.2; arXiv:1910.02054, section 7; "
           "megatron/core/transformer/moe/token_dispatcher.py; torch/distributed/fsdp/_fully_shard", "2026-08"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """Words of the answer: what a time is called, and what it leaves out."""

    label: str
    lacks: tuple[str, ...]
    scale: int
    source: Source


WORDS = Words(
    "estimate by a roofline",
    (
        "gradients and parameters of replicas are exchanged behind one micro-batch's passes, as overlap_grad_reduce "
        "and overlap_param_gather do",
        "tensor-parallel and expert exchanges are not hidden; a ring of keys and values is hidden behind attention, "
        "gathers of sharded weights and activations on their way to the host and back behind a layer's passes, "
        "sendings between interleaved stages behind a chunk",
        "launch gaps, load time, checkpoints, stragglers, uneven experts, an offloaded optimizer and an adapter's own "
        "products are left out",
    ),
    int(KB),
    Source("trainledger's own roofline", "answer/roofline.py", "2026-11"),
)  # fmt: skip
FASTER: Mapping[str, str] = {"fp8": "peak_low", "mxfp8": "peak_low", "nvfp4": "peak_low"}
