"""Pipeline schedules: how far each rank runs ahead, what it puts off, and where its chunks lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source

MEGATRON_CODE = Source(
    "Megatron-Core pipeline schedules",
    "megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches, get_schedule_table, "
    "forward_backward_pipelining_without_interleaving, forward_backward_pipelining_with_interleaving",
    "core 0.14 to 0.19.2",
)
TORCH_CODE = Source(
    "torch.distributed.pipelining schedules",
    "torch/distributed/pipelining/schedules.py, _get_1f1b_rank_ops, _get_warmup_ops, ScheduleInterleaved1F1B, "
    "ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble, ScheduleDualPipeV",
    "2.13",
)
ZERO_BUBBLE = Source("Zero Bubble Pipeline Parallelism", "arXiv:2401.10241, section 2 and figure 3", "2023-11")
DUALPIPE_CODE = Source(
    "DualPipe and DualPipeV", "deepseek-ai/DualPipe, dualpipe/{dualpipe,dualpipev}.py, step; README", "3da1bbe, 2025-03"
)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Warm-up forwards, then one forward and one backward in turn, then the backwards that are left.

    `hop`: forwards that a rank runs ahead for each rank between it and the last. `deferred`: weight gradients that it
    puts off for each rank before it; None where a backward makes both gradients at once. `interleaved`: whether a rank
    must have more than one chunk (True), may (None), or has one (False).
    """

    hop: int
    deferred: int | None
    interleaved: bool | None
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Vee:
    """ZB-V: `chunks` per rank, the second on the way back; `hop` forwards ahead for each rank up to the last."""

    hop: int
    chunks: int
    source: Source


@dataclass(frozen=True, slots=True)
class Paired:
    """DualPipe's steps. `hop`: forwards ahead for each rank between this one and the middle (DualPipeV: the last);
    `chunks` per rank; `half`: the part of the closing backwards that are whole; `directions` from which micro-batches
    come; `least`: micro-batches for each rank, at least; `parity`: both are multiples of `directions`."""

    hop: int
    chunks: int
    half: int
    directions: int
    least: int
    source: Source


ROUNDS: Mapping[str, Rounds] = {
    "1f1b": Rounds(1, None, False, (MEGATRON_CODE, TORCH_CODE)),
    "interleaved": Rounds(2, None, True, (MEGATRON_CODE, TORCH_CODE)),
    "zb-h1": Rounds(1, 1, None, (ZERO_BUBBLE, TORCH_CODE)),
    "zb-h2": Rounds(2, 2, False, (ZERO_BUBBLE,)),
}
MEGATRON_RUNS = ("1f1b", "interleaved")  # the schedules that Megatron-Core has (MEGATRON_CODE)
VEE = Vee(2, 2, TORCH_CODE)
PAIRED: Mapping[str, Paired] = {
    "dualpipe": Paired(2, 2, 2, 2, 2, DUALPIPE_CODE),
    "dualpipev": Paired(2, 2, 2, 1, 2, DUALPIPE_CODE),
}


@dataclass(frozen=True, slots=True)
class Placement:
    """How a schedule's chunks lie over ranks: `loop` (rank after rank, round after round), `vee` (there and back), or
    `both` (one from each end, every layer on two ranks)."""

    names: Mapping[str, str]
    source: Source


LOOP, VEE_SHAPE, BOTH_ENDS = "loop", "vee", "both"
PLACEMENT = Placement(
    {"zb-v": VEE_SHAPE, "dualpipev": VEE_SHAPE, "dualpipe": BOTH_ENDS},
    Source(
        "torch.distributed.pipelining, stages of ranks; DualPipe",
        "torch/distributed/pipelining/_utils.py, generate_stage_to_rank_mapping; dualpipe/dualpipe.py, is_first_rank",
        "2.13; 3da1bbe",
    ),
)


@dataclass(frozen=True, slots=True)
class LayoutLetters:
    """The letters of Megatron-Core's pipeline_model_parallel_layout, and what ends a stage."""

    embedding: str
    layer: str
    mtp: str
    loss: str
    stage: str
    source: Source


LAYOUT_LETTERS = LayoutLetters(
    "E",
    "t",
    "m",
    "L",
    "|",
    Source(
        "Megatron-Core pipeline layout",
        "megatron/core/transformer/pipeline_parallel_layer_layout.py, parse_str_to_list, validate_layer_layout",
        "core 0.19.2",
    ),
)
UNEVEN_SOURCE = Source(
    "Megatron-Core layers of a pipeline stage",
    "megatron/core/transformer/transformer_block.py, get_num_layers_to_build; transformer_layer.py, "
    "get_transformer_layer_offset; transformer_config.py, __post_init__; multi_token_prediction.py",
    "core 0.19.2",
)


@dataclass(frozen=True, slots=True)
class WeightedStages:
    """torchtitan spreads layers over stages as if embedding and head were layers: this many each, unless options say
    otherwise; the first stages take what does not divide. Before the day `since` they counted as none, and the inner
    stages took that first. `before`, `behind`: what it calls the embedding, and norm and head, which changed names."""

    framework: str
    embedding: int
    head: int
    since: str
    before: tuple[str, ...]
    behind: tuple[tuple[str, ...], ...]
    source: Source


TITAN_STAGES = WeightedStages(
    "torchtitan",
    1,
    1,
    "2025-04-15",
    ("tok_embeddings",),
    (("norm", "output"), ("norm", "lm_head")),
    Source(
        "torchtitan layers of a pipeline stage",
        "torchtitan/distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part; pipeline.py, "
        "generate_split_points (#604, #1103; in the week before the latter it made stages of one layer)",
        "cec7fb6fc, f64cf3c18 to b5bcd76, 2024-10 to 2026-08",
    ),
)


@dataclass(frozen=True, slots=True)
class LightEnds:
    """A framework whose inner stages, in their order, take a layer more before the first stage does, the last never."""

    framework: str
    source: Source


LIGHT_ENDS = LightEnds(
    "pithtrain", Source("PithTrain layers of a stage", "pithtrain/dualpipe/dualpipev.py, layer_partition", "889a408")
)
