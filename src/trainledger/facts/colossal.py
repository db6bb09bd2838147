"""ColossalAI's low-level ZeRO (LowLevelZeroPlugin), and the losses of its ColossalChat trainers."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class LowLevel:
    """`framework`: its name in a plan; `bucket`: elements of a reduce bucket, and of a bucket of weights to gather;
    `stream`: the number of the stream of reductions; `transformers`: the release that ColossalChat asks for; `release`:
    that of ColossalAI whose code was read; `optimizers`: those of a plan that its HybridAdam is."""

    framework: str
    bucket: int
    stream: int
    transformers: str
    release: str
    optimizers: tuple[str, ...]
    source: Source


LOW_LEVEL = LowLevel(
    "colossalai",
    12 * 1024 * 1024,
    1,
    "4.39.3",
    "0.4.0",
    ("adamw", "adam"),
    Source(
        "ColossalAI LowLevelZeroOptimizer",
        "colossalai/zero/low_level/low_level_optim.py, bookkeeping/{bucket_store,gradient_store,tensor_bucket}.py; "
        "booster/plugin/low_level_zero_plugin.py; applications/ColossalChat/requirements.txt",
        "0.4.0 (2024-07)",
    ),
)


@dataclass(frozen=True, slots=True)
class Hybrid:
    """HybridParallelPlugin, whose layers are spread over tensor-parallel ranks. `strategies`: what a plan calls its
    zero_stage 0 (on one data-parallel rank; MixedPrecisionOptimizer), 1 and 2 (LowLevelZeroOptimizer over data-parallel
    ranks). Its layers add up over ranks in place, inside their own functions; ColossalChat has logits gathered
    (parallel_output False)."""

    strategies: tuple[str, ...]
    source: Source


HYBRID = Hybrid(
    ("none", "zero1", "zero2"),
    Source(
        "ColossalAI HybridParallelPlugin",
        "colossalai/booster/plugin/hybrid_parallel_plugin.py; amp/naive_amp/mixed_precision_optimizer.py; "
        "nn/optimizer/hybrid_adam.py; shardformer/policies/llama.py, layer/{linear,embedding,_operation}.py",
        "0.4.0 (2024-07)",
    ),
)


@dataclass(frozen=True, slots=True)
class PairLoss:
    """A loss of log-probabilities of chosen and rejected sequences, which one forward sees together, or of single ones.
    `names`: its tasks in a plan; `single`: those that score sequences one by one;
    `likelihood`: the task that adds the likelihood of the chosen ones. It also looks for NaN in every gradient
    (set_detect_anomaly): a bool per element, once the function's own, larger gradient is gone, so never at the peak."""

    names: tuple[str, ...]
    single: tuple[str, ...]
    likelihood: str
    source: Source


PAIR_LOSS = PairLoss(
    ("dpo", "kto", "simpo", "orpo", "ppo"),
    ("kto", "ppo"),
    "orpo",
    Source(
        "ColossalChat trainers",
        "applications/ColossalChat/coati/trainer/{dpo,kto,orpo,ppo}.py, coati/models/{loss,utils}.py; "
        "torch/csrc/autograd/engine.cpp (anomaly mode)",
        "0.4.0 (2024-07)",
    ),
)
SCRIPTS = Source(
    "ColossalChat training scripts",
    "applications/ColossalChat/examples/training_scripts/train_{sft,dpo,orpo,ppo}.py",
    "0.4.0 (2024-07)",
)
