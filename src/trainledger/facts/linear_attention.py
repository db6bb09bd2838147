"""What runs linear attention by the gated delta rule, and numbers that its code fixes."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Chunk:
    """How many tokens the gated delta rule takes together, and how many elements of a head one kernel reads at most
    where it sums a gradient over parts of a head."""

    tokens: int
    tile: int
    source: Source


@dataclass(frozen=True, slots=True)
class Kernels:
    """A package that Transformers takes kernels from where it is installed, under the names that `stack.versions` may
    have for it."""

    packages: tuple[str, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Repeats:
    """The release of Transformers since which heads of queries and keys are repeated inside the delta rule; before, by
    the module, which names them until it returns."""

    since: str
    source: Source


REPEATS = Repeats(
    "5.23",
    Source(
        "Transformers heads of the gated delta rule",
        "transformers/models/{qwen3_next,qwen3_5,qwen3_5_moe}/modeling_*.py, *GatedDeltaNet.forward",
        "5.18.0 to 5.24.0",
    ),
)
CHUNK = Chunk(
    64,
    128,
    Source(
        "Gated delta rule in chunks",
        "transformers/models/qwen3_next/modeling_qwen3_next.py, torch_chunk_gated_delta_rule (5.24.0); "
        "fla/ops/gated_delta_rule/chunk.py, fla/ops/common/chunk_o.py, chunk_bwd_dqkwg (0.6.0)",
        "5.24.0; 0.6.0",
    ),
)
RULE = Kernels(
    ("flash-linear-attention", "fla-core"),
    Source(
        "flash-linear-attention",
        "fla/ops/gated_delta_rule/{chunk,chunk_fwd,wy_fast}.py, fla/ops/common/{chunk_delta_h,chunk_o}.py, "
        "fla/modules/norm/l2norm.py, fla/utils/decorators.py, input_guard; transformers/integrations/hub_kernels.py, "
        "use_kernel_func_from_hub_with_fallback",
        "0.6.0; 5.24.0",
    ),
)
CONVOLUTION = Kernels(
    ("causal-conv1d",),
    Source("causal-conv1d", "causal_conv1d/causal_conv1d_interface.py, CausalConv1dFn", "1.5"),
)
