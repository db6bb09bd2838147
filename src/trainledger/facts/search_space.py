"""What a search may change: strategies, degrees, recompute policies, by framework; and how far it looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.sources import Source
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.megatron_offload import OFFLOAD

OWN = Source("trainledger's own bound of a search", "what published runs use, and a step beyond", "2026-11")


@dataclass(frozen=True, slots=True)
class Policy:
    """A recompute policy: its name, the plan's `stack.recompute`, and which parts of a layer run forward twice, by the
    start of their names (empty text: all of the layer). `block`: the share of a stage's layers that do;
    `hosted`: modules whose saved tensors go to the host instead."""

    name: str
    recompute: Mapping[str, Any]
    source: Source
    again: tuple[str, ...] = ()
    block: float = 0.0
    hosted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Space:
    """What a search changes under one framework. `degrees`: axes that may be above 1; `least`: the least of each axis
    of model parallelism is 1, the most `most_tp`, `most_cp`; `micro_batches`; `pipelined`: the strategies that may
    stand beside a pipeline. `given`: what a plan has where a model was named alone."""

    frameworks: tuple[str, ...]
    strategies: tuple[str, ...]
    policies: tuple[Policy, ...]
    degrees: tuple[str, ...]
    micro_batches: tuple[int, ...]
    pipelined: tuple[str, ...]
    given: Mapping[str, Any]
    source: Source


@dataclass(frozen=True, slots=True)
class Axes:
    """How far degrees go: model `chunks` of a rank, `model` and `context` parallelism, at most; `batch`, `sequence`:
    sequences of a step and their tokens where none are given."""

    chunks: int
    model: int
    context: int
    batch: int
    sequence: int
    source: Source


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a search goes. `shown`: plans that are ranked; `exact`: exact estimates, at most; `points`: of these for
    the front alone; `front`: by what share memory must fall for another point of the front; `slack`: what alignment
    within buffers leaves of a bound; `refine`: pipelines that are solved for anew; `rounds`: how often, where a
    solution's estimate does not fit."""

    shown: int
    exact: int
    points: int
    front: float
    slack: float
    refine: int
    rounds: int
    source: Source


AXES = Axes(16, 16, 16, 128, 8192, OWN)
REACH = Reach(10, 400, 24, 0.05, 0.999, 2, 4, OWN)
CORE_CONFIG = Source(
    "Megatron-Core: what may run again", "megatron/core/transformer/transformer_config.py, recompute_modules", "0.19.2"
)
TITAN_CONFIG = Source(
    "torchtitan: activation checkpoint modes", "torchtitan/config/job_config.py, ActivationCheckpoint", "2025-08"
)
NONE = Policy("none", {"kind": "none"}, OWN)
FULL = Policy("full", {"kind": "full"}, OWN, ("",))
MEGATRON_FULL = Policy("full", {"kind": "full", "method": "uniform", "num_layers": 1}, CORE_CONFIG, ("",))
_OUTPUTS = ("layernorm", "moe_act")
_SELECTIVE = Policy("selective layernorm moe_act", {"kind": "selective", "modules": list(_OUTPUTS)}, CORE_CONFIG)
_UP = "mla_up_proj"
_LATENT = Policy(
    "selective mla_up_proj mlp", {"kind": "selective", "modules": [_UP, "mlp"]},
    CORE_CONFIG,
    ("self_attention.linear_q_up", "self_attention.linear_kv_up", "mlp.linear"),
)  # fmt: skip
_MOST = Policy(
    "selective mla_up_proj mlp layernorm moe_act",
    {"kind": "selective", "modules": [_UP, "mlp", *_OUTPUTS]},
    CORE_CONFIG,
    _LATENT.again,
)
_MLP = Policy("selective mlp", {"kind": "selective", "modules": ["mlp"]}, CORE_CONFIG, ("mlp.linear",))
_MLP_NORM = Policy(
    "selective mlp layernorm", {"kind": "selective", "modules": ["mlp", "layernorm"]}, CORE_CONFIG, ("mlp.linear",)
)  # fmt: skip
LATENT_POLICIES = (_LATENT, _MOST)  # need attention through latents
EXPERT_POLICIES = (_SELECTIVE,)  # need experts
DENSE_POLICIES = (_MLP, _MLP_NORM)
_ATTENTION = ("qkv_linear", "core_attn", "attn_proj")
_EXPERTS = ("expert_fc1", "moe_act")
# by whether there are experts: what goes to the host and back
OFFLOADS: Mapping[bool, tuple[Policy, ...]] = {
    False: (Policy("offload attention", {"kind": "none"}, OFFLOAD.source, hosted=_ATTENTION),),
    True: (
        Policy("offload experts", {"kind": "none"}, OFFLOAD.source, hosted=_EXPERTS),
        Policy("offload attention experts", {"kind": "none"}, OFFLOAD.source, hosted=(*_ATTENTION[1:], *_EXPERTS)),
    ),
}
BLOCKS = Policy("block", {"kind": "full", "method": "block", "num_layers": 1}, CORE_CONFIG, ("",), 0.5)
_PRETRAIN: Mapping[str, Any] = {
    "task": "pretrain",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "fp32", "reduce": "fp32", "master": "fp32"},
    "optimizer": {"name": "adam", "implementation": "apex-fused", "grad_clip": 1.0},
    "stack": {
        "versions": {"torch": "2.13.0", "megatron-core": "0.19.2", "transformer_engine": "2.17"},
        "attention": "fused",
        "kernels": ["te"],
        "loss": "vocab-parallel-te",
        "options": {"create_attention_mask_in_dataloader": False},
    },
}
EXPERT_OPTIONS: Mapping[str, Any] = {
    "moe_token_dispatcher_type": "alltoall",
    "moe_grouped_gemm": True,
    "moe_permute_fusion": True,
    "moe_router_dtype": "fp32",
    "moe_router_load_balancing_type": "seq_aux_loss",
}
_SHARDED: Mapping[str, Any] = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32"}
_TITAN: Mapping[str, Any] = {
    "task": "pretrain",
    "precision": {**_SHARDED, "reduce": "fp32"},
    "optimizer": {"name": "adamw", "implementation": "fused", "grad_clip": 1.0},
    "stack": {"versions": {"torch": "2.13.0", "torchtitan": "2026-01-15"}, "attention": "sdpa"},
}
_TRANSFORMERS: Mapping[str, Any] = {
    "task": "sft",
    "optimizer": {"name": "adamw", "implementation": "fused", "grad_clip": 1.0},
    "stack": {"versions": {"torch": "2.13.0", "transformers": "5.24.0"}, "attention": "sdpa"},
}
_DEEPSPEED: Mapping[str, Any] = {
    "task": "sft",
    "optimizer": {"name": "adamw", "implementation": "fused", "grad_clip": 1.0},
    "stack": {
        "versions": {"torch": "2.13.0", "transformers": "5.24.0", "deepspeed": "0.19.8"}, "attention": "sdpa"
    },
}  # fmt: skip
_MICRO = (1, 2, 4, 8, 16)
_TITAN_POLICIES = (
    NONE,
    Policy(
        "selective op",
        {"kind": "selective", "policy": "op"},
        TITAN_CONFIG,
        ("attention", "self_attn", "mlp", "feed_forward"),
    ),
    Policy("selective every 2nd layer", {"kind": "selective", "policy": "every 2nd layer"}, TITAN_CONFIG, ("",), 0.5),
    FULL,
)
SPACES: tuple[Space, ...] = (
    Space(
        FRAMEWORKS, ("megatron-distopt",), (NONE, BLOCKS, MEGATRON_FULL),
        ("tp", "cp", "pp", "vpp", "ep", "etp"), _MICRO, ("megatron-distopt",), _PRETRAIN, OWN,
    ),
    Space(
        ("torchtitan",), ("fsdp2", "hsdp"), _TITAN_POLICIES, ("tp", "cp", "pp", "vpp", "ep"), _MICRO, ("fsdp2",),
        _TITAN, OWN,
    ),
    Space(
        ("transformers", "torch"), ("ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp"), (NONE, FULL), (),
        _MICRO, (), _TRANSFORMERS, OWN,
    ),
    Space(("deepspeed",), ("zero1", "zero2", "zero3"), (NONE, FULL), (), _MICRO, (), _DEEPSPEED, OWN),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """What a strategy spreads over the ranks that shard: weights, gradients, optimizer states (with master weights);
    `gathered`: whether weights are gathered for every micro-batch."""

    weights: bool
    gradients: bool
    states: bool
    gathered: bool
    source: Source


_ZERO = Source("ZeRO", "arXiv:1910.02054, section 5", "2020-05")
_CORE = Source("Megatron-Core distributed optimizer", "megatron/core/optimizer/distrib_optimizer.py", "0.19.2")
_FSDP = Source("PyTorch FSDP", "torch/distributed/fsdp/_fully_shard", "2.13")
SPREADS: Mapping[str, Spread] = {
    "none": Spread(False, False, False, False, _ZERO),
    "ddp": Spread(False, False, False, False, _ZERO),
    "zero1": Spread(False, False, True, False, _ZERO),
    "zero2": Spread(False, True, True, False, _ZERO),
    "zero3": Spread(True, True, True, True, _ZERO),
    "fsdp1": Spread(True, True, True, True, _FSDP),
    "fsdp2": Spread(True, True, True, True, _FSDP),
    "hsdp": Spread(True, True, True, True, _FSDP),
    "megatron-ddp": Spread(False, False, False, False, _CORE),
    "megatron-distopt": Spread(False, False, True, False, _CORE),
}
