"""What a model's outputs hold between its forward and the loss's backward."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class KeptCache:
    """Families whose model returned keys and values of all layers (`use_cache`, on by default) under recompute too,
    where others turn that off, before the release `until` of Transformers."""

    families: frozenset[str]
    until: str
    source: Source

    def holds(self, family: str, transformers: str) -> bool:
        """Whether that family's outputs hold keys and values in that release; an unknown one counts as the newest."""
        return family in self.families and bool(transformers) and not at_least(transformers, self.until)


@dataclass(frozen=True, slots=True)
class NoCheckpoints:
    """Families whose model takes the setting and never calls a checkpoint, from release `since` of Transformers on and
    before `until`: recompute does nothing there."""

    families: frozenset[str]
    since: str
    until: str
    source: Source

    def holds(self, family: str | None, transformers: str | None) -> bool:
        """Whether that family's layers are not recomputed in that release; an unknown one counts as the newest."""
        here = family in self.families and bool(transformers) and at_least(transformers, self.since)
        return here and not at_least(transformers, self.until)


NO_CHECKPOINTS = NoCheckpoints(
    frozenset({"starcoder2"}),
    "4.48",
    "4.52",
    Source(
        "Transformers Starcoder2",
        "transformers/models/starcoder2/modeling_starcoder2.py, Starcoder2Model.forward",
        "4.48.3 to 4.51.3; with checkpoints 4.46.3, 4.52.4",
    ),
)
KEPT_CACHE = KeptCache(
    frozenset({"gpt_bigcode"}),
    "4.53",
    Source(
        "Transformers GPT-BigCode",
        "transformers/models/gpt_bigcode/modeling_gpt_bigcode.py, GPTBigCodeModel.forward: presents",
        "4.45.2 to 4.50.3; 4.53.3",
    ),
)


@dataclass(frozen=True, slots=True)
class Cache:
    """A model that is asked for its cache (`use_cache`, on by default) gathers every layer's keys and values and hands
    them out with the logits; it does not while it trains with recomputed layers."""

    source: Source


CACHE = Cache(
    Source(
        "Transformers cache",
        "transformers/cache_utils.py, DynamicCache.update; models/llama/modeling_llama.py, LlamaModel.forward",
        "4.39.3 to 5.24.0",
    )
)


@dataclass(frozen=True, slots=True)
class RaisedOutputs:
    """Under autocast accelerate wraps the model's forward: what it returns in 16 bits is copied to fp32, while the
    old outputs still live."""

    source: Source


@dataclass(frozen=True, slots=True)
class ClonedOutputs:
    """Where DistributedDataParallel looks for unused parameters, it hands out clones of the model's outputs, so that a
    node of its own runs first in backward."""

    source: Source


CLONED_OUTPUTS = ClonedOutputs(
    Source("PyTorch DistributedDataParallel, _DDPSink", "torch/nn/parallel/distributed.py", "v2.4 to v2.14")
)
RAISED_OUTPUTS = RaisedOutputs(
    Source(
        "accelerate convert_outputs_to_fp32", "accelerate/accelerator.py, prepare_model; utils/operations.py", "1.0.1"
    )
)
