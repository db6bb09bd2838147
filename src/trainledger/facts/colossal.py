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
class PairLoss:
    """A loss over chosen and rejected sequences, which one forward sees together. `names`: its tasks in a plan;
    `single`: the one that scores sequences one by one; `likelihood`: the task that adds the likelihood of the chosen
    ones. It also looks for NaN in every gradient (set_detect_anomaly): a bool per element, once the function's own,
    larger gradient is gone, so never at the peak."""

    names: tuple[str, ...]
    single: str
    likelihood: str
    source: Source


PAIR_LOSS = PairLoss(
    ("dpo", "kto", "simpo", "orpo"),
    "kto",
    "orpo",
    Source(
        "ColossalChat trainers",
        "applications/ColossalChat/coati/trainer/{dpo,kto,orpo}.py, coati/models/{loss,utils}.py; "
        "torch/csrc/autograd/engine.cpp (anomaly mode)",
        "0.4.0 (2024-07)",
    ),
)
