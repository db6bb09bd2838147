"""torchtitan: what its model code, loss, sharding and recompute policy do from which change on, and which releases and
commits come after it.

Read in source at the commits named: torchtitan/{train,models,parallelisms,components,distributed}.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.torchtitan_commits import DIGITS, ERAS

NAME = "torchtitan"
MODELS = ("llama", "qwen3", "qwen3_moe", "deepseek_v3")
OP = "op"  # the policy of selective recompute that keeps results by operation
NEWEST = "9999"


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
    SAVES_CUDNN = "saves-cudnn"  # the policy `op` keeps results of every attention kernel
    GROUPED = "grouped"  # attention is handed grouped keys and values
    PERMUTES = "permutes"  # experts' rows are copied by expert with padding, and added to what shared experts made
    SCATTERS = "scatters"  # experts' results are added up by a deterministic scatter
    CHUNKED_HEAD = "chunked-head"  # a chunked loss runs head, loss and their backward chunk by chunk
    FLEX = "flex"  # language models run flex attention, and soon one linear layer makes queries, keys and values


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
        Row(Change.SCATTERS, "2026-04-06", "", _read("components of experts; ops/scatter_add.py (#2775)", "8bc267dea")),
        Row(Change.CHUNKED_HEAD, "2026-04-27", "", _read("components/loss.py, ChunkedCELoss (#2937)", "786e26f8e")),
        Row(
            Change.FLEX, "2026-06-09", "", _read("config_utils (#3571); models/llama3 (#3714)", "169545712, 3396a4b37")
        ),
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
class Release:
    """The day from which on a release, or a commit beside the main branch, has the main branch's changes."""

    names: tuple[str, ...]
    day: str
    source: Source


RELEASES = (
    Release(("0.0.2",), "2025-03-12", _read("assets/version.txt; the middle of the days it stood there", "b0a80df20")),
    Release(("0.1.0",), "2025-06-05", _read("assets/version.txt", "b461ea82c")),
    Release(("0.2.0",), "2025-10-17", _read("assets/version.txt", "29624e37f")),
    Release(("0.2.1",), "2025-12-26", _read("assets/version.txt", "64b5e15fa")),
    Release(("0.2.2",), "2026-02-20", _read("assets/version.txt", "73a0e6979")),
    Release(("2cf57a",), "2024-06-08", _read("a branch", "2cf57abe736a")),
    Release(("05ac4d",), "2024-06-12", _read("a branch", "05ac4dc49350")),
    Release(("466586",), "2024-10-22", _read("a branch that compiles the loss", "46658697571f")),
    Release(("9dec37",), "2024-12-26", _read("a branch", "9dec370ad")),
    Release(("c14ab7",), "2025-03-24", _read("a branch", "c14ab776ce87")),
    Release(("d0cdb1",), "2025-08-22", _read("a branch", "d0cdb1433ad1")),
    Release(("54310d",), "2025-10-16", _read("a branch", "54310d57e5b9")),
    Release(("00c95c",), "2025-09-17", _read("a branch", "00c95c0f5199")),
)
_DAYS = {digits: day for day, commits in ERAS.items() for digits in commits.split()}
_DAYS |= {name: one.day for one in RELEASES for name in one.names}


def day_of(version: str) -> str:
    """The day of torchtitan's history after which a release or a commit comes; the newest where it is not known."""
    text = version.strip().removeprefix("v")
    return _DAYS.get(text) or _DAYS.get(text[:DIGITS]) or NEWEST


def known(version: str) -> bool:
    """Whether it is a release or a commit of the table."""
    return day_of(version) != NEWEST


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
    """From this architecture's number on cuDNN's attention is tried before flash."""

    since: int
    source: Source


ORDERED = Ordered(100, _read("models/attention.py, has_cuda_capability(10, 0)", "3b85aa31f"))


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
class Nightlies:
    """PyTorch's main branch builds this release from this day on, when the one before is cut."""

    release: str
    since: str
    source: Source


_CUTS = Source("PyTorch releases, days of branch cuts", "github.com/pytorch/pytorch, RELEASE.md", "2026-08")
NIGHTLIES = tuple(
    Nightlies(release, since, _CUTS)
    for release, since in (
        ("2.14", "2026-06-15"),
        ("2.13", "2026-04-13"),
        ("2.12", "2026-02-09"),
        ("2.11", "2025-12-08"),
        ("2.10", "2025-09-08"),
        ("2.9", "2025-06-30"),
        ("2.8", "2025-03-17"),
        ("2.7", "2024-12-16"),
        ("2.6", "2024-09-16"),
        ("2.5", "2024-06-24"),
        ("2.4", "2024-03-25"),
        ("2.3", ""),
    )
)
_DAY = re.compile(r"20\d\d-\d\d-\d\d")


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


def torch_of(version: str) -> str:
    """The release that PyTorch's main branch was on when a version of torchtitan was made."""
    return torch_at(day_of(version))


def torch_at(day: str) -> str:
    """The release that PyTorch's main branch was on that day."""
    return next(row.release for row in NIGHTLIES if day >= row.since)


def dated_torch(text: str) -> str:
    """The release of a build named by a commit with its day, as `1963fc8 (2024-12-23)`; empty for other texts."""
    match = _DAY.search(text)
    return torch_at(match.group()) if match else ""
