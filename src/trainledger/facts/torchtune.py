"""torchtune: its model code, its chunked loss, its NF4, and what its recipes' presets say.

Read in source: torchtune/modules/{transformer,attention,position_embeddings,rms_norm}.py, modules/loss, recipes
(2024-05 and 2024-11), torchao/dtypes/nf4tensor.py (0.18).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.dtypes import BF16, INT8, UINT8
from trainledger.facts.quantization import Part, Per, Product, QuantKind
from trainledger.facts.torchtitan_days import dated
from trainledger.facts.versions import at_least

NAME = "torchtune"
MODELS = ("llama", "mistral", "qwen2")


def _read(path: str) -> Source:
    return Source("torchtune", f"torchtune/{path}", "2024-05, 2024-11")


@dataclass(frozen=True, slots=True)
class Chunks:
    """The head's logits are made in so many chunks of every sequence's tokens, each of which has its own loss."""

    count: int
    source: Source


HEAD_CHUNKS = Chunks(8, _read("modules/loss/ce_chunked_output_loss.py, CEWithChunkedOutputLoss"))


class Early(StrEnum):
    """What recipes did with a model's logits at first, and which layers a quantised model had."""

    SHIFTS = "shifts"  # all but the last token's are copied, and their words turned to the second dim for the loss
    HOLDS = "holds"  # their name lives through backward, up to the next step's
    PARTLY = "partly"  # linear layers without an adapter were not quantised


@dataclass(frozen=True, slots=True)
class Until:
    """Recipes did so before a release, and before the day on which the main branch stopped."""

    release: str
    day: str
    source: Source


EARLY: dict[Early, Until] = {
    Early.SHIFTS: Until(
        "0.3.0", "2024-08-28", Source("torchtune", "recipes, chunked cross entropy (#1390)", "4fba6cd44")
    ),
    Early.HOLDS: Until("0.3.0", "2024-07-28", Source("torchtune", "recipes, del logits (#1235)", "8a98fbaa3")),
    Early.PARTLY: Until(
        "0.3.0", "2024-07-29", Source("torchtune", "models, NF4 of layers without LoRA (#1119)", "898670f0e")
    ),
}


def early(what: Early, version: str) -> bool:
    """Whether recipes of a release, or of the main branch on a day, did so; the newest where none is named."""
    row = EARLY[what]
    return dated(version) < row.day if dated(version) else not at_least(version or None, row.release)


@dataclass(frozen=True, slots=True)
class BoundLoss:
    """Recipes compile a loss over all logits into a module of its own: that of LoRA on one device, and distillation's,
    run it; the others do not bind what `compile_loss` returns, and run the loss as it was. A chunked loss changes in
    place."""

    tasks: tuple[str, ...]
    source: Source

    def holds(self, task: str, adapter: bool, world: int) -> bool:
        """Whether a run's recipe runs the compiled loss."""
        return task in self.tasks or (adapter and world == 1)


BOUND_LOSS = BoundLoss(
    ("distill",),
    Source("torchtune", "recipes, training.compile_loss(self._loss_fn)", "2024-09 (c169bcddd) to bd2a0fc7c"),
)
RECIPES = Source("torchtune presets", "recipes/configs: optimizer.fused True", "2024-11")
MODEL = _read("modules/{transformer,attention,position_embeddings}.py")
NF4 = Source("torchao NF4Tensor", "torchao/dtypes/nf4tensor.py, get_original_weight", "0.18")


@dataclass(frozen=True, slots=True)
class Offloading:
    """How many packed tensors stay on the device while their copies are under way, and how many a recomputed layer
    packs: one of them is its input."""

    stash: int
    packs: int
    source: Source

    @property
    def layers(self) -> int:
        """Layers whose inputs stay."""
        return -(-self.stash // self.packs)


OFFLOADING = Offloading(5, 1, _read("training/_activation_offloading.py, max_fwd_stash_size"))
_TRL = "trl/models/activation_offloading.py, OffloadActivations; torch/utils/checkpoint.py"
TRL_REENTRANT = Offloading(5, 1, Source("TRL activation offloading, reentrant checkpoints", _TRL, "1.16.0, v2.13"))
# without reentrance a checkpoint also saves an empty tensor
TRL_PLAIN = Offloading(5, 2, Source("TRL activation offloading, _NoopSaveInputs", _TRL, "1.16.0, v2.13"))


@dataclass(frozen=True, slots=True)
class Unpacking:
    """What lives beside the whole weight while NF4Tensor is unpacked in eager mode, for each half of its elements: so
    many indices (int64), entries of the table, and scaled entries."""

    halves: int
    indices: int
    entries: int
    source: Source


UNPACKING = Unpacking(2, 1, 2, NF4)
QUANT_KIND = QuantKind(
    "nf4",
    4,
    (
        Part("quantized_data", UINT8, Per.WORD, 0, NF4),
        Part("quantized_scalers", INT8, Per.BLOCK, 64, NF4),
        Part("quantization_factor", BF16, Per.NESTED, 256, NF4),
        Part("scaler_mean", BF16, Per.FIXED, 1, NF4),
        Part("nf4", BF16, Per.FIXED, 16, NF4),
    ),
    Product.DEQUANTISE,
    "torchao",
    NF4,
)
