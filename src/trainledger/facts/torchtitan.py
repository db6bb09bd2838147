"""torchtitan: what its model code, loss, sharding and recompute policy do from which change on, and which releases and
commits come after it.

Read in source at the commits named: torchtitan/{train,models,parallelisms,components,distributed}.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.torchtitan_days import day_of

NAME = "torchtitan"
MODELS = ("llama", "qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss")
OP = "op"  # the policy of selective recompute that keeps results by operation


class Change(StrEnum):
    """A change of torchtitan that moves memory."""

    FREES_LOGITS = "frees-logits"  # the loop lets go of the logits before backward
    LOSS_CASTS = "loss-casts"  # the loss casts logits to fp32, before the model did
    SAVES_ABS = "saves-abs"  # the policy `op` keeps absolute values too
    NATIVE_NORM = "native-norm"  # norms are torch.nn.RMSNorm
    ORDERED_ATTENTION = "ordered-attention"  # flash attention first, cuDNN's before it on compute capability 10.0
    APART = "apart"  # embedding by itself, last norm with the head, which stays gathered; before, the last layer did
    RUNS_ON = "runs-on"  # recompute does not stop at the last saved tensor that is needed
    DROPS_OUTPUTS = "drops-outputs"  # a pipeline's step returns no outputs, which until then are merged as it ends
    CUDNN_FIRST = "cudnn-first"  # cuDNN's attention before flash attention on every device
    LEAVES_SUMS = "leaves-sums"  # the policy `op` keeps no sums over ranks
    SAVES_CUDNN = "saves-cudnn"  # the policy `op` keeps results of every attention kernel
    GROUPED = "grouped"  # attention is handed grouped keys and values
    PERMUTES = "permutes"  # experts' rows are copied by expert with padding, and added to what shared experts made
    BY_WIDTH = "by-width"  # FSDP shards experts along their second dim where ranks outnumber them
    BY_WIDTH_ALONE = "by-width-alone"  # likewise without ranks of experts
    SAVES_SENT = "saves-sent"  # the policy `op` keeps the rows that ranks of experts exchange
    SHARED_BETWEEN = "shared-between"  # shared experts run before the routed ones' results are weighed and added up
    ADDS_SLOPES = "adds-slopes"  # gradients of what experts read are added up over the ranks that share each expert
    UNSORTS = "unsorts"  # experts' results are put in the order of tokens, and multiplied by scores as matrices
    PARTIAL_SLOPES = (
        "partial-slopes"  # gradients of what experts and shared experts read are added up once, behind both
    )
    HIGH_GATE = "high-gate"  # routers run in fp32
    WHOLE_EXPERTS = "whole-experts"  # experts that are spread over ranks are whole on each
    OWN_TOKENS = "own-tokens"  # beside experts on other ranks, a rank of tp routes its part of the sequence alone
    OWN_SUMS = "own-sums"  # and adds up results of its part alone; shared experts gather and scatter by themselves
    SCATTERS = "scatters"  # experts' results are added up by a deterministic scatter
    CHUNKED_HEAD = "chunked-head"  # a chunked loss runs head, loss and their backward chunk by chunk
    FLEX = "flex"  # language models run flex attention
    FUSED_QKV = "fused-qkv"  # one linear layer makes queries, keys and values of Llama and Qwen3


@dataclass(frozen=True, slots=True)
class Row:
    """A change holds from one day of torchtitan's history on, and before another (empty: to the newest)."""

    change: Change
    since: str
    until: str
    source: Source


def _read(what: str, commit: str) -> Source:
    return Source("torchtitan", what, commit)


ROWS: dict[Change, Row] = {
    row.change: row
    for row in (
        Row(Change.FREES_LOGITS, "2024-06-12", "", _read("train.py, del pred", "e29b6b4d4")),
        Row(Change.LOSS_CASTS, "2024-10-22", "", _read("train.py, loss_fn (#642)", "e10cb9494")),
        Row(Change.SAVES_ABS, "2024-11-26", "2025-02-06", _read("_save_list; taken out again in #820", "bcebc0de5")),
        Row(Change.NATIVE_NORM, "2025-03-19", "", _read("models/norms.py (#985)", "3b39d7ab0")),
        Row(Change.ORDERED_ATTENTION, "2025-05-14", "", _read("models/attention.py (#1196)", "3b85aa31f")),
        Row(Change.CUDNN_FIRST, "2025-10-09", "", _read("models/attention.py, sdpa_backends (#1776)", "6a3a9da95")),
        Row(Change.LEAVES_SUMS, "2025-03-20", "2025-04-21", _read("_save_list (#965, #1031)", "247f4e3aa, 88d8ab372")),
        Row(Change.APART, "2025-07-28", "", _read("apply_fsdp (#1094)", "83e694105")),
        Row(Change.RUNS_ON, "2025-08-29", "", _read("activation_checkpoint, early_stop False (#1580)", "25413d224")),
        Row(Change.DROPS_OUTPUTS, "2025-10-22", "", _read("train.py, return_outputs=False (#1922)", "e5ef99aab")),
        Row(Change.SAVES_CUDNN, "2025-12-01", "", _read("_op_sac_save_list (#2095)", "b39377f9f")),
        Row(Change.GROUPED, "2026-01-27", "", _read("GQA without kv repeats (#2259)", "ff0829c10")),
        Row(
            Change.PERMUTES,
            "2025-08-05",
            "2025-11-21",
            _read("models/moe.py (#1534), to #1974", "a9aa50696, e1f7f318a"),
        ),
        Row(Change.BY_WIDTH, "2025-08-13", "", _read("apply_fsdp, shard_placement_fn (#1561)", "7354848df")),
        Row(Change.SAVES_SENT, "2025-09-06", "", _read("_op_sac_save_list (#1672)", "c4e229115")),
        Row(
            Change.SHARED_BETWEEN,
            "2025-09-23",
            "2026-05-20",
            _read("models/moe.py (#1741), to #3386", "476a965f9, 963c20cba"),
        ),
        Row(Change.ADDS_SLOPES, "2025-10-14", "", _read("expert_parallel.py, grad_placements (#1878)", "3ff755178")),
        Row(
            Change.UNSORTS,
            "2025-11-21",
            "2026-04-06",
            _read("models/moe/moe.py (#1974), to #2775", "e1f7f318a, 8bc267dea"),
        ),
        Row(Change.PARTIAL_SLOPES, "2026-03-02", "", _read("distributed/tensor_parallel.py (#2416)", "de329200b")),
        Row(Change.HIGH_GATE, "2026-03-04", "", _read("models/common/moe/moe.py (#2389)", "ab5ed59f8")),
        Row(Change.BY_WIDTH_ALONE, "2026-03-26", "", _read("apply_fsdp, ep_degree 1 (#2281)", "18a46d427")),
        Row(Change.SCATTERS, "2026-04-06", "", _read("components of experts; ops/scatter_add.py (#2775)", "8bc267dea")),
        Row(Change.CHUNKED_HEAD, "2026-04-27", "", _read("components/loss.py, ChunkedCELoss (#2937)", "786e26f8e")),
        Row(Change.WHOLE_EXPERTS, "2026-04-30", "", _read("deprecate expert tensor parallel (#3167)", "c4b409af2")),
        Row(Change.OWN_TOKENS, "2026-05-20", "", _read("models/common/moe_sharding.py (#3386)", "963c20cba")),
        Row(Change.FLEX, "2026-06-09", "", _read("config_utils (#3571)", "169545712")),
        Row(Change.FUSED_QKV, "2026-06-24", "", _read("models/llama3, models/qwen3, fuse_qkv (#3714)", "3396a4b37")),
        Row(Change.OWN_SUMS, "2026-08-10", "", _read("models/common/moe_sharding.py (#3996)", "45ea2f093")),
    )
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """Days between which a run that compiles its layers compiles its loss too."""

    since: str
    until: str
    source: Source


COMPILED_LOSS = (
    Compiled("2024-10-22", "2024-12-18", _read("train.py, torch.compile(loss_fn); off again", "e10cb9494, e8977b007")),
    Compiled("2025-04-02", "", _read("components/loss.py, build_cross_entropy_loss (#1033)", "bbb1b616e")),
)


@dataclass(frozen=True, slots=True)
class Components:
    """The list of what a run compiles (`compile.components`), and its words; left out, it is both of them."""

    section: str
    key: str
    model: str
    loss: str
    source: Source


COMPONENTS = Components(
    "compile", "components", "model", "loss", _read("config/job_config.py, Compile (#1608)", "08b8b244f, 2025-08-20")
)


def holds(change: Change, version: str) -> bool:
    """Whether a version of torchtitan has a change."""
    row, day = ROWS[change], day_of(version)
    return row.since <= day and not (row.until and day >= row.until)


def compiles_loss(version: str) -> bool:
    """Whether a version of torchtitan compiles the loss of a run that compiles."""
    day = day_of(version)
    return any(row.since <= day and not (row.until and day >= row.until) for row in COMPILED_LOSS)


@dataclass(frozen=True, slots=True)
class Ordered:
    """From this architecture's number on cuDNN's attention is tried before flash; once CUDNN_FIRST holds, on all."""

    since: int
    source: Source


ORDERED = Ordered(100, _read("models/attention.py, has_cuda_capability(10, 0)", "3b85aa31f"))


@dataclass(frozen=True, slots=True)
class Budget:
    """The policy that keeps what a share of the memory holds (`memory budget 0.5`): its words, the share where none is
    given, and the pattern of the whole policy."""

    words: str
    share: float
    pattern: str
    source: Source


BUDGET = Budget(
    "memory budget",
    0.5,
    r"memory budget (0|1|0?\.\d{1,6}|[01]\.0{1,6})",
    _read("distributed/activation_checkpoint.py, MemoryBudgetAC (#1731)", "b27638732"),
)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the policy `op` keeps: attention by these kernels (`later`: once SAVES_CUDNN holds), and all products but
    each `every`th of a layer."""

    kernels: tuple[Kernel, ...]
    later: tuple[Kernel, ...]
    every: int
    source: Source


SAVED = Saved(
    (Kernel.FLASH, Kernel.EFFICIENT, Kernel.FLEX),
    (Kernel.CUDNN,),
    2,
    _read(
        "_save_list and _custom_policy of parallelize_llama.py; distributed/activation_checkpoint.py", "to b5bcd76c6"
    ),
)


@dataclass(frozen=True, slots=True)
class Chunks:
    """A chunked loss takes the tokens of every sequence in so many chunks."""

    count: int
    source: Source


LOSS_CHUNKS = Chunks(8, _read("components/loss.py, num_output_chunks, num_chunks", "c14ab776ce87, 786e26f8e"))


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest release of the table."""

    release: str
    source: Source


NEWEST_RELEASE = Newest("0.2.2", _read("assets/version.txt", "73a0e6979"))
NEWEST_COMMIT = Newest("b5bcd76c66d0", _read("components/loss.py, ChunkedLossWrapper", "b5bcd76c6"))


@dataclass(frozen=True, slots=True)
class Script:
    """The script that starts runs on one node, of so many devices, sets expandable segments from this day on; that of
    several nodes sets nothing."""

    devices: int
    since: str
    source: Source


RUN = Script(8, "2024-10-22", _read("run_llama_train.sh, run_train.sh; multinode_trainer.slurm", "a5e57e4a9"))


def allocator_of(version: str) -> dict[str, bool] | None:
    """The allocator's settings of a run on one node; None where its script sets none."""
    return {"expandable_segments": True} if day_of(version) >= RUN.since else None
