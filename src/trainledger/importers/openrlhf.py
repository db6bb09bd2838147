"""OpenRLHF's command lines, old names and new: the policy's update and who acts beside it, or supervised and
preference training."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.facts.import_rl import (
    ACTOR_NODE,
    NAMES,
    NODE,
    OPENRLHF_FILLED,
    OPENRLHF_ROWS,
    POLICY_BATCH,
    PROGRAMS,
    VALUES,
)
from trainledger.facts.import_rows import CERTAIN
from trainledger.facts.preferences import SAMPLED
from trainledger.importers.command_line import Line, arguments, lines_of
from trainledger.importers.command_ranks import ask, ranks_of
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import FlatKeyed
from trainledger.importers.piece import Piece, Rank
from trainledger.importers.rl_roles import openrlhf_roles
from trainledger.importers.settings import Settings

FORMAT = "OpenRLHF command line"
ATTENTION = {
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
    "sdpa": "sdpa",
    "eager": "eager",
    "flash_attn": "flash",
}
DTYPES = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
STAGES = {"0": "ddp", "1": "zero1", "2": "zero2", "3": "zero3"}


def identify(given: Input) -> float:
    """How surely this is OpenRLHF's."""
    return CERTAIN if _line(given) is not None else 0.0


def extract(given: Input, context: Context) -> Piece:
    """What the command says of a plan."""
    piece = Piece(FORMAT, given.name, Rank.COMMAND)
    line = _line(given)
    if line is None:
        piece.refuse("", f"{given.name}: no command of OpenRLHF", "one is needed")
        return piece
    values, places = arguments(line.words)
    held = Settings(values, places, piece)
    said = {word: next((name for name in names if held.said(name)), "") for word, names in NAMES.items()}
    task = next(
        one
        for name, one in PROGRAMS.items()
        if line.program.text.rpartition(".")[2] == name or line.program.text.endswith(f"{name}.py")
    )
    if said["estimator"] and held.text(said["estimator"]) != VALUES:  # which alone read values, and train a critic
        task = SAMPLED if task == "ppo" else task
    piece.give("task", task, f"{line.program.where} {line.program.text}")
    piece.give("stack.framework", "openrlhf", piece.name)
    _model(held, piece, said)
    _batch(held, piece, said, task)
    _training(held, piece, said)
    _ranks(held, piece, said, line, given)
    if task in ("ppo", "grpo") and "batch.micro_batch" not in piece.given:
        piece.fill(POLICY_BATCH.path, POLICY_BATCH.value, POLICY_BATCH.why, POLICY_BATCH.source)
    if task in ("ppo", "grpo"):
        openrlhf_roles(held, piece)
    for row in OPENRLHF_FILLED:
        if row.path not in (*piece.given, *piece.filled) and not any(
            path.startswith(f"{row.path}.") for path in piece.given
        ):
            piece.fill(row.path, row.value, row.why, row.source)
    FlatKeyed(
        Document(dict(values), {(name,): where.rpartition(" ")[0] for name, where in places.items()}),
        OPENRLHF_ROWS,
        piece,
    ).finish()
    return piece


def _line(given: Input) -> Line | None:
    """The command that runs one of OpenRLHF's programs."""
    if given.script is None:
        return None
    for line in lines_of(given.script):
        text = line.program.text.removesuffix(".py").replace("/", ".")
        words = [word.text for word in line.words]
        if text.rpartition(".")[2] in PROGRAMS and (
            "openrlhf" in text or any(name in words for name in NAMES["micro"])
        ):
            return line
    return None


def _model(given: Settings, piece: Piece, said: Mapping[str, str]) -> None:
    """The model and its adapter."""
    if said["model"]:
        given.give("model", given.text(said["model"]), said["model"])
    else:
        piece.refuse(NAMES["model"][1], "missing", "the model that is trained is needed", where=piece.name)
    rank = given.whole(said["rank"], 0) if said["rank"] else 0
    if rank:
        given.give("adapter.kind", "lora", said["rank"])
        given.give("adapter.r", rank, said["rank"])
        targets = given.texts(said["targets"]) if said["targets"] else []
        piece.give(
            "adapter.targets",
            targets if targets and targets != ["all-linear"] else "all-linear",
            given.where(said["targets"] or said["rank"]),
        )
        if said["dropout"]:
            given.give("adapter.dropout", given.number(said["dropout"]), said["dropout"])
    if said["nf4"]:
        given.give("quantization.kind", "nf4", said["nf4"])
        given.give("quantization.double", True, said["nf4"])


def _batch(given: Settings, piece: Piece, said: Mapping[str, str], task: str) -> None:
    """Sequences and tokens."""
    for word, path in (("micro", "batch.micro_batch"), ("global", "batch.global")):
        if said[word]:
            given.give(path, given.whole(said[word]), said[word])
    if said["length"]:
        given.give("batch.sequence", given.whole(said["length"]), said["length"])
    elif said["prompt"] and said["answer"]:
        lengths = (given.whole(said["prompt"]) or 0) + (given.whole(said["answer"]) or 0)
        given.give("batch.sequence", lengths or None, said["answer"])


def _training(given: Settings, piece: Piece, said: Mapping[str, str]) -> None:
    """Precision, DeepSpeed's settings, recomputation, attention."""
    dtype = given.choice(said["dtype"], DTYPES) if said["dtype"] else None
    for key in ("weights", "compute"):
        given.give(f"precision.{key}", dtype, said["dtype"])
    if said["stage"]:
        given.give("parallel.strategy", given.choice(said["stage"], STAGES), said["stage"])
    for word, path in (("overlap", "parallel.options.overlap_comm"),):
        if said[word]:
            given.give(path, True, said[word])
    if said["hpz"] and (given.whole(said["hpz"]) or 1) > 1:
        given.give("parallel.options.zero_hpz_partition_size", given.whole(said["hpz"]), said["hpz"])
    if said["accumulated"]:
        given.give("parallel.options.data_types.grad_accum_dtype", given.text(said["accumulated"]), said["accumulated"])
    if said["offload"]:
        given.give("offload.optimizer", "cpu", said["offload"])
    if said["kept"]:
        given.give("save.limit", given.whole(said["kept"]), said["kept"])
    if said["export"]:
        given.give("save.export", True, said["export"])
    if said["recompute"]:
        given.give("stack.recompute.kind", "full", said["recompute"])
        piece.give(
            "stack.recompute.reentrant", bool(said["reentrant"]), given.where(said["reentrant"] or said["recompute"])
        )
    if said["attention"]:
        given.give("stack.attention", given.choice(said["attention"], ATTENTION), said["attention"])
    elif said["flash"]:
        given.give("stack.attention", "flash", said["flash"])
    if said["liger"]:
        given.give("stack.kernels", ["liger"], said["liger"])
    if said["clip"]:
        given.give("optimizer.grad_clip", given.number(said["clip"]) or None, said["clip"])
    if said["optimizer"]:
        given.give(
            "optimizer.name",
            {"adam": "adamw"}.get(given.text(said["optimizer"]) or "", given.text(said["optimizer"])),
            said["optimizer"],
        )


def _ranks(given: Settings, piece: Piece, said: Mapping[str, str], line: Line, source: Input) -> None:
    """Ranks of the policy: its own devices, or those that the launcher starts."""
    for word, key in (("tp", "tp"), ("cp", "cp")):
        degree = given.whole(said[word]) if said[word] else None
        if degree is not None and degree > 1:
            given.give(f"parallel.{key}", degree, said[word])
    per = given.whole(said["gpus"]) if said["gpus"] else None
    if per is not None:
        nodes = (given.whole(said["nodes"]) if said["nodes"] else None) or 1
        given.give("parallel.world", per * nodes, said["gpus"])
        return
    if said["nodes"] or piece.given["task"].value in ("ppo", "grpo"):
        nodes = (given.whole(said["nodes"]) if said["nodes"] else None) or 1
        piece.fill(ACTOR_NODE.path, NODE * nodes, ACTOR_NODE.why, ACTOR_NODE.source)
        return
    ranks = ranks_of(line, source)
    if ranks.count is not None:
        piece.give("parallel.world", ranks.count, ranks.where)
    else:
        ask(piece, ranks)
