"""Masks of padded rows: who hands none to the model, and how releases of Transformers write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class Unmasked:
    """A framework, or kernel set, whose own forward drops a batch's mask while it trains."""

    name: str
    source: Source


UNMASKED = Unmasked(
    "unsloth", Source("Unsloth", "unsloth/models/llama.py, LlamaModel_fast_forward: padding is not hidden", "2025.11.1")
)


@dataclass(frozen=True, slots=True)
class WrittenMask:
    """Before the release `until` (`apart`: of these model types) a model's forward writes a mask of padded rows out
    once, in the dtype of hidden states, for PyTorch's own call as for eager attention; from then on it is one of bools,
    which that call writes out in every layer. Layers with a window of `layered` types write a mask of their own; eager
    attention of `always` types adds one whether or not rows hold padding, names its scores until it ends, and returns
    its weights from the release `returned` on."""

    until: str
    apart: Mapping[str, str]
    layered: frozenset[str]
    always: frozenset[str]
    returned: str
    source: Source

    def holds(self, family: str, release: str) -> bool:
        """Whether that release's forward of a model type writes its mask; one that is not known does not."""
        return not at_least(release, self.apart.get(family, self.until))

    def adds(self, family: str, release: str) -> bool:
        """Whether eager attention of a model type adds a mask of rows without padding too."""
        return family in self.always and self.holds(family, release)

    def returns(self, family: str, release: str) -> bool:
        """Whether eager attention of a model type hands its weights to the layer."""
        return not self.adds(family, release) or at_least(release, self.returned)


_ENCODERS = ("bert", "roberta", "camembert", "xlm-roberta", "distilbert")
WRITTEN_MASK = WrittenMask(
    "4.53",
    dict.fromkeys((*_ENCODERS, "qwen2_moe", "olmoe"), "5.0")
    | dict.fromkeys(("gpt2", "gpt_bigcode"), "4.54")
    | {"opt": "5.2", "falcon": "5.0"},
    frozenset(("gemma2", "gemma3_text", "cohere2")),
    frozenset(("bert", "roberta", "camembert", "xlm-roberta")),
    "4.54",
    Source(
        "transformers/models/*/modeling_*.py",
        "_update_causal_mask, _prepare_4d_causal_attention_mask_with_cache_position, _prepare_4d_attention_mask, "
        "get_extended_attention_mask",
        "4.45.2 to 5.4.0",
    ),
)


@dataclass(frozen=True, slots=True)
class ContiguousCall:
    """Before the release `until` classes copy queries, keys and values head by head where they hand PyTorch's own call
    a mask; those of `apart` types did so for a PyTorch before 2.2 alone."""

    until: str
    apart: frozenset[str]
    source: Source

    def holds(self, family: str, release: str) -> bool:
        """Whether that release's class of a model type copies; one that is not known does not."""
        return family not in self.apart and not at_least(release, self.until)


CONTIGUOUS_CALL = ContiguousCall(
    "4.48",
    frozenset((*_ENCODERS, "gpt2", "gpt_neox", "phi")),
    Source("transformers/models/*/modeling_*.py", "*SdpaAttention.forward, require_contiguous_qkv", "4.45.2, 4.46.3"),
)


@dataclass(frozen=True, slots=True)
class AlwaysMasked:
    """From this release on these model types make a mask in any case, which PyTorch's own call is then handed."""

    families: frozenset[str]
    since: str
    source: Source

    def holds(self, family: str, release: str) -> bool:
        """Whether that release's forward of a model type makes its mask in any case."""
        return family in self.families and at_least(release or None, self.since)


ALWAYS_MASKED = AlwaysMasked(
    frozenset(("falcon",)),
    "5.0",
    Source(
        "transformers/models/falcon/modeling_falcon.py",
        "FalconModel.forward: and_mask_function, allow_is_causal_skip",
        "5.0.0 to 5.24.0; without it 4.57.3",
    ),
)
