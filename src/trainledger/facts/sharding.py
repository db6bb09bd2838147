"""How data-parallel strategies shard: releases from which they act otherwise, and their padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class Streams:
    """Numbers of the streams, beside that of compute (0), on which casts, gathers and reductions make their tensors,
    and what follows an all-reduce over replicas."""

    cast: int
    gather: int
    reduce: int
    replicas: int


@dataclass(frozen=True, slots=True)
class PerParameter:
    """FSDP2. Releases of torch: from `root` on (in the main branch from the day `root_day` on) an explicit
    reshard_after_forward holds for the root as well; from `inputs` on a reduce-scatter's input stays until the next one
    is made; from `outputs` on an all-reduce's input that was cast stays until backward ends; from `cuts` on a gradient
    that DTensor left whole is cut to this rank's part of the weight before it is reduced, of which before only the
    first rows were read; from `named` on a loop over gradients to reduce leaves the last one named until the reduction
    has been asked for."""

    root: str
    root_day: str
    inputs: str
    outputs: str
    cuts: str
    named: str
    streams: Streams
    source: Source


FSDP2 = PerParameter(
    "2.8",
    "2025-06-04",
    "2.5",
    "2.6",
    "2.6",
    "2.6",
    Streams(1, 1, 2, 3),
    Source(
        "PyTorch fully_shard",
        "torch/distributed/fsdp/_fully_shard/{_fsdp_param_group,_fsdp_collectives,_fsdp_state}.py",
        "v2.4 to v2.13; pytorch #129721, #136237, #140044, #154704, #155319",
    ),
)


@dataclass(frozen=True, slots=True)
class OwnUnits:
    """From this release of accelerate on the embedding, and the last norm with the head, are units of their own."""

    package: str
    since: str
    source: Source


OWN_UNITS = OwnUnits(
    "accelerate", "1.14", Source("accelerate, fsdp2_prepare_model", "accelerate/utils/fsdp_utils.py (#4015)", "1.14.0")
)


@dataclass(frozen=True, slots=True)
class FlatParameter:
    """FSDP1. Where a unit's parameters keep their own names (`use_orig_params`), each begins at a multiple of
    `alignment` bytes of the flat parameter."""

    alignment: int
    streams: Streams
    source: Source


@dataclass(frozen=True, slots=True)
class FrozenHook:
    """A frozen FSDP1 unit inside a reentrant checkpoint: the hook that frees its gathered weights holds the detached
    input and its gradient until the whole backward ends. From these releases of Transformers on (by model type, or for
    all others) the checkpoint lies inside the layer, so that the unit's input is no leaf and nothing is held."""

    inside: Mapping[str, str]
    others: str
    source: Source

    def holds(self, family: str, transformers: str) -> bool:
        """Whether the checkpoint lies outside the unit."""
        return bool(transformers) and not at_least(transformers, self.inside.get(family, self.others))


HOOK = FrozenHook(
    dict.fromkeys(("llama", "mistral", "qwen2"), "4.52"),
    "4.53",
    Source(
        "PyTorch FullyShardedDataParallel, _register_post_backward_reshard_only_hook",
        "torch/distributed/fsdp/_runtime_utils.py, torch/autograd/graph.py (register_multi_grad_hook); "
        "transformers/modeling_layers.py (GradientCheckpointingLayer)",
        "v2.4 to v2.13; 4.51.3, 4.52.4",
    ),
)


@dataclass(frozen=True, slots=True)
class Offload:
    """FSDP's offload takes weights, gradients and the optimizer's step to these places, all together."""

    places: tuple[str, ...]
    source: Source


OFFLOAD = Offload(
    ("cpu",),
    Source(
        "PyTorch CPUOffloadPolicy, CPUOffload",
        "torch/distributed/fsdp/_fully_shard/{_fsdp_api,_fsdp_param,_fsdp_collectives}.py, api.py, _flat_param.py, "
        "_runtime_utils.py",
        "v2.4 to v2.13",
    ),
)
FIRST, SECOND = 1, 2  # versions of FSDP
VERSIONS = (FIRST, SECOND)
HYBRID = ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2")  # FSDP1's strategies that shard within a node, whose size a plan says
# The values of FSDP's own settings that are known, in any case of letters.
WORDS = {
    "sharding_strategy": ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", *HYBRID),
    "backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "NO_WRAP", "SIZE_BASED_WRAP"),
}


@dataclass(frozen=True, slots=True)
class SizeWrap:
    """Wrapping by size: the policy's name, the option that says how many elements a unit has at least, torch's own
    default for it; accelerate's is 0, which wraps nothing."""

    name: str
    option: str
    least: int
    source: Source


SIZE_WRAP = SizeWrap(
    "SIZE_BASED_WRAP",
    "min_num_params",
    100_000_000,
    Source(
        "PyTorch size_based_auto_wrap_policy; accelerate, set_auto_wrap_policy; Trainer, update_fsdp_plugin_peft",
        "torch/distributed/fsdp/wrap.py; accelerate/utils/{dataclasses,fsdp_utils}.py; transformers/trainer.py",
        "v2.4 to v2.13; 1.15.0; 5.24.0",
    ),
)
FSDP1 = FlatParameter(
    16,
    Streams(1, 2, 3, 4),
    Source(
        "PyTorch FullyShardedDataParallel", "torch/distributed/fsdp/{_flat_param,_runtime_utils}.py", "v2.4 to v2.13"
    ),
)
