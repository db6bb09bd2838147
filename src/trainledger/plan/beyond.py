"""Keys of the plan beyond the training step: the node, checkpoints, evaluation, lengths of samples."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from trainledger.plan.names import CheckpointFormat, Longer, Packing, Reduced
from trainledger.plan.text import shown
from trainledger.plan.types import (
    Accumulation,
    Bool,
    CountOrNull,
    DegreeOrNull,
    MicroBatch,
    SavesOrNull,
    Section,
    Size,
    Text,
    refusal,
)
from trainledger.plan.types import Sequence as Tokens


class Node(Section):
    """The machine that ranks share. A bare name may stand for the mapping."""

    name: Text | None = Field(None, description="A known node (dgx-h100, p5.48xlarge, ...), or a name of your own.")
    ranks: DegreeOrNull = Field(None, description="Ranks on one node.")
    memory: Size = Field(None, description="Bytes of the host's memory, shared by the node's ranks.")
    memory_bandwidth: Size = Field(None, description="Bytes per second of the host's memory, all of it together.")
    nvme: Size = Field(None, description="Bytes of NVMe, shared by the node's ranks.")
    nvme_bandwidth: Size = Field(None, description="Bytes per second of the NVMe, all drives together.")
    remote: Size = Field(None, description="Bytes of memory or storage behind a network, the node's share.")
    remote_bandwidth: Size = Field(None, description="Bytes per second of the network, the node's share.")
    used: Size = Field(None, description="Bytes of the host's memory that something else has taken.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if isinstance(value, str) and value.strip():
            return {"name": value}
        if not isinstance(value, dict | Node):
            raise refusal(shown(value), "a node's name, or {ranks: ..., memory: ...}")
        return value


class Save(Section):
    """Checkpoints."""

    format: CheckpointFormat | None = Field(None, description="How they are written; null means the framework's own.")
    dtype: Reduced | None = Field(None, description="Element type of saved weights; null means as they are resident.")
    optimizer: Bool = Field(True, description="Whether the optimizer's states are saved with the weights.")
    resharded: Bool = Field(
        False, description="Whether optimizer states are written whole, for other degrees (Megatron's torch_dist)."
    )
    export: Bool = Field(False, description="Whether a copy of the weights that inference reads is written beside.")
    file_bytes: Size = Field(None, description="Largest file of weights; null means the framework's default.")
    limit: SavesOrNull = Field(None, description="Checkpoints that are kept (save_total_limit); null means all.")
    saves: SavesOrNull = Field(None, description="Checkpoints that the run writes; null means not known.")
    asynchronous: Bool = Field(False, description="Whether training goes on while a copy on the host is written.")
    disk: Size = Field(None, description="Bytes that checkpoints may take.")
    bandwidth: Size = Field(None, description="Bytes per second that the storage takes, all ranks together.")


class Generation(Section):
    """Generation while evaluating, with a cache of keys and values."""

    batch: MicroBatch = Field(description="Sequences that are generated at once.")
    prompt: Tokens = Field(description="Tokens of a prompt.")
    tokens: Tokens = Field(description="Tokens that are generated for each.")
    static: Bool = Field(False, description="Whether the cache is made whole at once; else it grows by concatenation.")


class Evaluation(Section):
    """A pass over a set between steps, without gradients."""

    micro_batch: MicroBatch | None = Field(None, description="Sequences of one forward; null means training's.")
    sequence: Tokens | None = Field(None, description="Tokens of one sequence; null means training's.")
    batches: Accumulation = Field(1, description="Forwards of the whole set on one rank.")
    prediction_loss_only: Bool = Field(
        True, description="Whether logits are thrown away once the loss is known, as where no compute_metrics is given."
    )
    accumulation: CountOrNull = Field(
        None, description="Forwards after which kept logits go to the host (eval_accumulation_steps); null: at the end."
    )
    generation: Generation | None = Field(None, description="What is generated; null means nothing.")


class Lengths(Section):
    """How long samples are. A list of lengths, or the path of a file of them, may stand for the mapping."""

    longest: Tokens | None = Field(None, description="Tokens of the longest sample.")
    median: Tokens | None = Field(None, description="Tokens of the sample in the middle.")
    values: tuple[Tokens, ...] = Field((), description="Tokens of every sample, or of a part of them drawn by chance.")
    file: Text | None = Field(None, description="A file of lengths: one a line, a column named length, or JSON.")
    packing: Packing = Field(
        "none", description="none: padded to the batch's longest; packed: rows are full; padding-free: end to end."
    )
    padded: Bool | None = Field(
        None, description="Whether a micro-batch's rows hold padding; null: where samples are known to differ."
    )
    longer: Longer = Field(
        "cut", description="What becomes of samples longer than batch.sequence: cut, or drop (ms-swift's default)."
    )

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> Any:
        if isinstance(value, str) and value.strip():
            return {"file": value}
        if isinstance(value, list | tuple) and value:
            return {"values": value}
        if not isinstance(value, dict | Lengths) or not value:
            raise refusal(shown(value), "a list of lengths, a file of them, or {longest: ..., median: ...}")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Lengths:
        if self.median is not None and self.longest is not None and self.median > self.longest:
            raise refusal(f"a median of {self.median:,} above the longest, {self.longest:,}", "a median up to longest")
        if self.longest is not None and self.longest < max(self.values, default=0):
            found = f"a longest of {self.longest:,} below a listed sample's {max(self.values):,}"
            raise refusal(found, "a longest from the listed ones on; batch.sequence cuts them")
        if self.padded and self.packing != "none":
            raise refusal(f"padded rows, and packing: {self.packing}, which pads none", "packing: none, or no `padded`")
        return self
