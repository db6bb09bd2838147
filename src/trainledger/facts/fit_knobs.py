"""What `fit` may turn: each key with its step and bounds, and how a stated confidence reads an interval."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.base.units import KIB
from trainledger.facts.limits import MICRO_BATCH, SEQUENCE

OWN = Source("trainledger's own choice", "steps and bounds of a search, no measurement", "2026-11")
FREEZE = Source(
    "LLaMA-Factory, its freeze tuning",
    "llamafactory/model/adapter.py, _setup_freeze_tuning: the last n layers, whole; all else frozen",
    "0.9.6",
)
TILES = Source(
    "Matrix Multiplication Background User's Guide",
    "docs.nvidia.com/deeplearning/performance, Tensor Core requirements: dims that are multiples of 64 elements (bf16)",
    "2023-02",
)


class Knob(StrEnum):
    """What is looked for, under the words of `--find`."""

    MICRO_BATCH = "micro-batch"
    SEQUENCE = "sequence"
    LORA_RANK = "lora-rank"
    LAYERS_UNFROZEN = "layers-unfrozen"
    MODEL = "model"
    DEVICE = "device"
    DEVICES = "devices"
    TP = "tp"
    PP = "pp"
    CP = "cp"
    EP = "ep"


@dataclass(frozen=True, slots=True)
class KnobRow:
    """One knob: the plan's key, its unit, what is looked for (the largest value that fits, or the smallest), the step
    of whole numbers and the highest that is tried (0: not a number, or bounded by the plan itself)."""

    knob: Knob
    path: str
    unit: str
    largest: bool
    source: Source
    step: int = 0
    high: int = 0


KNOBS: dict[Knob, KnobRow] = {
    row.knob: row
    for row in (
        KnobRow(Knob.MICRO_BATCH, "batch.micro_batch", "sequences", True, OWN, 1, MICRO_BATCH.value),
        KnobRow(Knob.SEQUENCE, "batch.sequence", "tokens", True, TILES, 64, SEQUENCE.value),
        KnobRow(Knob.LORA_RANK, "adapter.r", "", True, OWN, 1),
        KnobRow(Knob.LAYERS_UNFROZEN, "trainable", "layers", True, FREEZE, 1),
        KnobRow(Knob.MODEL, "model", "", True, OWN),
        KnobRow(Knob.DEVICE, "device", "", False, OWN),
        KnobRow(Knob.DEVICES, "parallel.world", "devices", False, OWN),
        KnobRow(Knob.TP, "parallel.tp", "ranks", False, OWN),
        KnobRow(Knob.PP, "parallel.pp", "ranks", False, OWN),
        KnobRow(Knob.CP, "parallel.cp", "ranks", False, OWN),
        KnobRow(Knob.EP, "parallel.ep", "ranks", False, OWN),
    )
}


@dataclass(frozen=True, slots=True)
class Confidence:
    """Which quantiles of measured runs an interval's expected value and high end are."""

    expected: float
    high: float
    source: Source


CONFIDENCE = Confidence(
    0.5, 0.95, Source("run records: 5, 50 and 95 % quantiles of reserved over the replay's", "facts/overheads.py")
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Numbers from the last stretch's end (or 0) to `last`, `step` apart."""

    last: int
    step: int


@dataclass(frozen=True, slots=True)
class Ladders:
    """`devices`: stretches of numbers of data-parallel replicas. `sequences`: the first of a frontier's, which
    double from there (micro-batches from 1), and `rows`: how many at most. `beyond`: how many values past the first
    that does not fit are tried too. `turns`: after so many interpolations a search halves once."""

    devices: tuple[Stretch, ...]
    sequences: int
    rows: int
    beyond: int
    turns: int
    source: Source


LADDERS = Ladders((Stretch(8, 1), Stretch(128, 8), Stretch(KIB, 64), Stretch(16 * KIB, KIB)), 512, 16, 2, 3, OWN)
# Parts of the names of weights that are a table of learned positions: no token may lie past its end.
LEARNED_POSITIONS = ("wpe", "position_embeddings", "embed_positions")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "seq_length")
