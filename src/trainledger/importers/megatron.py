"""Megatron-LM's arguments: a script or command line that runs pretrain_gpt.py, or YAML of MODEL_ARGS."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from trainledger.facts.import_megatron import DEEPSPEED, ROWS
from trainledger.facts.import_megatron_defaults import DETERMINISM, FSDP_OPTION, MODEL, RUN, SHARDED
from trainledger.facts.import_rows import CERTAIN, LIKELY, PERHAPS, FilledRow
from trainledger.facts.megatron_buffers import PACKAGES, release_of
from trainledger.facts.versions import at_least
from trainledger.importers.command_line import Line, arguments, best_line
from trainledger.importers.command_ranks import Ranks, ranks_of
from trainledger.importers.document import Document, Path
from trainledger.importers.draft import Ignored
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.megatron_mesh import give_mesh
from trainledger.importers.megatron_model import give_model
from trainledger.importers.megatron_run import (
    give_batch,
    give_optimizer,
    give_options,
    give_precision,
    give_recompute,
    give_save,
    give_stack,
)
from trainledger.importers.piece import Piece, Rank
from trainledger.importers.settings import Settings

FORMAT = "Megatron-LM arguments"
KNOWN = frozenset(row.name for row in ROWS)
OWN = frozenset(("--num-layers", "--hidden-size", "--num-attention-heads", "--micro-batch-size", "--seq-length",
                 "--tensor-model-parallel-size", "--pipeline-model-parallel-size"))  # fmt: skip
PROGRAM = "pretrain_gpt.py"
ARGS, ENV = "MODEL_ARGS", "ENV_VARS"
OTHERS = {
    "pretrain_mamba.py": "a state-space model", "pretrain_hybrid.py": "a hybrid model", "pretrain_t5.py": "a T5",
    "pretrain_bert.py": "a BERT", "pretrain_vlm.py": "a vision-language model", "pretrain_ict.py": "a biencoder",
    "pretrain_retro.py": "a retrieval model", "pretrain_vision_classify.py": "a vision model",
    "train_rl.py": "reinforcement learning",
}  # fmt: skip
GONE = {"--batch-size": "--micro-batch-size", "--model-parallel-size": "--tensor-model-parallel-size"}
REFUSED = {
    "--hybrid-layer-pattern": "a hybrid model", "--hybrid-override-pattern": "a hybrid model",
    "--is-hybrid-model": "a hybrid model", "--heterogeneous-layers-config-path": "layers that differ",
    "--heterogeneous-layers-config-encoded-json": "layers that differ",
    "--yaml-cfg": "arguments in another file, by its own names", "--perform-rl-step": "reinforcement learning",
    "--decoder-num-layers": "an encoder and a decoder", "--decoder-seq-length": "an encoder and a decoder",
    "--retro-add-retriever": "a retrieval model", "--use-legacy-models": "the models before Megatron-Core",
    "--skip-train": "a run that does not train",
}  # fmt: skip


def identify(given: Input) -> float:
    """How surely this is Megatron-LM's: its program with its arguments; or a mapping of arguments."""
    if given.script is not None:
        line, count = best_line(given.script, OWN)
        if line is None or count <= 1:
            return 0.0
        if os.path.basename(line.program.text).startswith("pretrain_"):
            return CERTAIN
        return LIKELY if len(OWN) < count + count else PERHAPS
    return CERTAIN if len(set(_mapping(given.data)) & OWN) > 1 else 0.0


def extract(given: Input, context: Context) -> Piece:
    """What Megatron's arguments say of a plan."""
    piece = Piece(FORMAT, given.name, Rank.COMMAND)
    ranks, env = Ranks(None), dict[str, tuple[str, str]]()
    if given.script is not None:
        line, _ = best_line(given.script, OWN)
        if line is None:
            piece.refuse("", f"{given.name}: no command with Megatron's arguments", "one is needed")
            return piece
        values, places = arguments(line.words)
        ranks = ranks_of(line, given)
        env = {name: (word.text, f"{word.where} {name}") for name, word in line.command.env.items() if word.known}
        _other_program(line, piece)
    else:
        values, places, env = _of_mapping(given, piece)
    settings = Settings(values, places, piece)
    give(settings, piece, context, ranks, env)
    Keyed(_document(values, places), ROWS, piece).finish()
    return piece


def give(given: Settings, piece: Piece, context: Context, ranks: Ranks, env: Mapping[str, tuple[str, str]]) -> None:
    """Everything that settings under Megatron's names say of a plan, and its defaults."""
    versions = {name: text for name, text in context.versions.items() if name in PACKAGES}
    release = release_of(versions)
    _refused(given, piece)
    give_model(given, piece, release)
    give_precision(given, piece)
    give_optimizer(given, piece)
    give_batch(given, piece)
    give_recompute(given, piece)
    give_stack(given, piece, env)
    give_options(given, piece)
    give_save(given, piece)
    give_mesh(given, piece, ranks)
    _defaults(given, piece, release, bool(versions))


def _defaults(given: Settings, piece: Piece, release: str, versioned: bool) -> None:
    """What is left out, as this release has it."""
    sharded = SHARDED if getattr(piece.given.get("parallel.strategy"), "value", None) == "megatron-fsdp" else ()
    fixed = (DETERMINISM,) if given.has("--deterministic-mode") else ()
    for row in (*MODEL, *RUN, *sharded, *fixed):
        said = row.path in piece.given or any(path.startswith(f"{row.path}.") for path in piece.given)
        skipped = (row.path == "stack.versions.megatron" and versioned) or (
            row.path == "batch.accumulation" and "batch.global" in piece.given
        )
        if not said and not skipped and holds(row, release):
            piece.fill(row.path, row.value, row.why, row.source)


def holds(row: FilledRow, release: str) -> bool:
    """Whether a default is that of a release; an unknown one counts as newest."""
    return at_least(release or None, row.since) and not (row.until and at_least(release or None, row.until))


def _refused(given: Settings, piece: Piece) -> None:
    for name, what in REFUSED.items():
        if given.has(name):
            given.refuse_name(name, what, "GPT models of one kind of layer can be read so far")
    for name, newer in GONE.items():
        if given.has(name):
            given.refuse_name(name, "an argument that Megatron-LM no longer has", f"{newer} says it")
    for name in DEEPSPEED:
        if given.has(name):
            fix = "trainledger reads DeepSpeed's JSON beside Transformers' arguments, and Megatron-LM's own arguments."
            given.refuse_name(name, "Megatron-DeepSpeed", "its runs cannot be estimated so far", fix)
            return


def _other_program(line: Line, piece: Piece) -> None:
    """Refuse a program of Megatron-LM's that trains something else."""
    what = OTHERS.get(os.path.basename(line.program.text))
    if what is not None:
        piece.refuse("", f"{line.program.text}: {what}", f"{PROGRAM} can be read so far", where=line.program.where)


def _mapping(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a mapping: under MODEL_ARGS, or as they stand."""
    inner = data.get(ARGS)
    return inner if isinstance(inner, dict) else data


def _of_mapping(given: Input, piece: Piece) -> tuple[dict[str, Any], dict[str, str], dict[str, tuple[str, str]]]:
    """Values, places and variables of a mapping of arguments."""
    document = given.document or Document({}, {})
    under = (ARGS,) if isinstance(given.data.get(ARGS), dict) else ()
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, value in _mapping(given.data).items():
        if name.startswith("--"):
            values[name] = _plain(value)
            places[name] = f"{document.where((*under, name))} {name}"
        elif not under and name != ENV:
            piece.ignored.append(Ignored(name, "no argument of Megatron-LM"))
    for name in given.data if under else ():
        if name.startswith(ARGS) and name != ARGS:
            piece.ignored.append(Ignored(name, f"a later run of the same test; {ARGS} is read"))
    variables = given.data.get(ENV)
    env = {
        name: (_text(value), f"{document.where((ENV, name))} {name}")
        for name, value in (variables.items() if isinstance(variables, dict) else ())
        if value is not None
    }
    return values, places, env


def _plain(value: Any) -> Any:
    """A YAML value as an argument's: a text in brackets is its words, a mapping or null nothing."""
    if isinstance(value, list):
        return [_text(one) for one in value]
    if isinstance(value, dict):
        return None
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        return value[1:-1].split()
    return value if value is None or isinstance(value, bool) else _text(value)


def _text(value: Any) -> str:
    """A number as it is written in an argument: 4 of 4.0 stays 4.0."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _document(values: Mapping[str, Any], places: Mapping[str, str]) -> Document:
    """The arguments as a mapping whose keys know their places."""
    held: dict[Path, str] = {(name,): where.rpartition(" ")[0] for name, where in places.items()}
    held[()] = ""
    return Document(dict(values), held)


__all__ = ["FORMAT", "FSDP_OPTION", "extract", "give", "holds", "identify"]
