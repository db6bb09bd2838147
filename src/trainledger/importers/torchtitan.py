"""torchtitan: its TOML files, and lines that start it (`run_train.sh`, torchrun) with `--section.key` flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.import_torchtitan import FLOAT8, KEYS, MESH_KEYS, MX, NAME, PLACES
from trainledger.facts.import_torchtitan_words import (
    ALLOCATOR,
    BUCKETS,
    FILLED,
    KEPT,
    LOSS_FILLED,
    MASKED,
    MODULES,
    OLD_VERSION,
    PRESETS,
    REGISTRY,
    SCRIPTS,
    TOML_VERSION,
)
from trainledger.facts.versions import parse_version
from trainledger.importers import torchtitan_mesh as mesh
from trainledger.importers import torchtitan_parts as parts
from trainledger.importers.document import Document, Path
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.launch import Launch, launch_of, only_run, ranks
from trainledger.importers.overlay import (
    Change,
    Wanted,
    config_of,
    fill,
    flags,
    overlay,
    rows_of,
    shown,
)
from trainledger.importers.own_file import Own, extracted
from trainledger.importers.piece import Filled, Given, Piece
from trainledger.importers.script import Command, Script
from trainledger.importers.shell_words import Word

FACT = "torchtitan.config"
WANTED = Wanted(FACT, "Configurations of torchtitan itself are known by name.")
SECTIONS = {"job", "parallelism", "activation_checkpoint", "lr_scheduler", "checkpoint", "experimental", "float8"}
TOKENS = ("training.num_tokens_per_microbatch_per_dp_rank", "training.max_context_length")
REPLICATED = "ddp"
DEBUG = "debug_model"
FOLDER = "train_configs"  # a model's own configurations lie in it
LLAMA = (".", "", "llama", "torchtitan")  # what it lay in when there was but one model
EVALUATION = ("validation", "validator")
_ROWS = {row.name: row for row in KEYS}


def identify(given: Input) -> float:
    """1 for a line that starts torchtitan; nearly that for a mapping with its sections of a model and of training."""
    if given.script is not None:
        return float(any(True for _ in _runs(given.script)))
    model, training = given.data.get("model"), given.data.get("training")
    if isinstance(model, dict) and isinstance(model.get("flavor"), str):
        return 0.95
    return 0.6 if isinstance(training, dict) and SECTIONS & set(given.data) else 0.0


def extract(given: Input, context: Context) -> Piece:
    """The piece of a TOML file, or of a line with its configuration. Raises InputError for none or several lines."""
    return extracted(given, context, Own(NAME, FACT, _ROWS, _command, _config, _read))


@dataclass(frozen=True, slots=True)
class _Run:
    """A line: the configuration that it names (a file, or a function of the registry), its launch and its flags."""

    command: Command
    launch: Launch
    config: Word | None
    registry: bool
    changes: tuple[Change, ...]
    scripted: bool

    @property
    def env(self) -> Mapping[str, Word]:
        """The variables that the line is started with."""
        return self.command.env


def _runs(script: Script) -> Iterator[tuple[Command, int]]:
    """Every line that trains, and where in it the flags start; lines that only check a configuration are left out."""
    for command in script.commands:
        if any(text.startswith("--comm.mode") for text in command.texts):
            continue
        for at, text in enumerate(command.texts):
            named = os.path.basename(text) in SCRIPTS or text.endswith(MODULES)
            plain = os.path.basename(text) == "train.py" and any(
                one.startswith(("--job.config_file", "--module")) for one in command.texts[at:]
            )
            if named or plain:
                yield command, at
                break


def _command(script: Script) -> _Run:
    found = list(_runs(script))
    only_run([command.words[at].where for command, at in found])
    command, at = found[0]
    changes = list(flags(command.words[at + 1 :]))
    named = {one.key: one for one in changes if one.key in ("job.config_file", "config", "module")}
    changes = [one for one in changes if one.key not in named]
    scripted = os.path.basename(command.words[at].text) in SCRIPTS
    launch, registry, config = _launch(command, at, scripted), False, command.env.get("CONFIG_FILE")
    if "job.config_file" in named:
        config = Word(f"{named['job.config_file'].value}", named["job.config_file"].where)
    if "config" in named:
        config, registry = Word(f"{named['config'].value}", named["config"].where), True
    elif scripted and config is None and "CONFIG" in command.env:
        config, registry = command.env["CONFIG"], True
    return _Run(command, launch, config, registry, tuple(changes), scripted)


def _launch(command: Command, at: int, scripted: bool) -> Launch:
    if scripted:
        words = command.env
        per_node = next((words[name] for name in ("NGPU", "NPROC_PER_NODE") if name in words), None)
        return Launch(per_node, words.get("NNODES"))
    return launch_of(command.words[:at])


def _config(run: _Run, given: Input, context: Context) -> Document:
    """The document that a line's flags change: a file's, or one that comes with torchtitan."""
    if run.config is None:
        return Document({}, {})
    name = _preset_name(run.config.text)
    preset = PRESETS.get(name)
    if run.registry and preset is None:
        near = nearest(name, PRESETS)
        fix = f"Did you mean {near}?" if near else ""
        known = f"{len(PRESETS)} of torchtitan's configurations are known by name"
        raise InputError([Problem("config", shown(run.config.text), known, fix, run.config.where)])
    try:
        if not run.registry:
            return config_of(run.config, given, context, WANTED)
    except InputError:
        if preset is None:
            raise
    return _of_preset(name, run)


def _preset_name(path: str) -> str:
    """A configuration of torchtitan itself by its path. Each model's folder has a `debug_model.toml`; where it lies in
    none, it is the first model's."""
    name = os.path.basename(path).removesuffix(".toml")
    if name != DEBUG:
        return name
    folders = path.split("/")
    at = folders.index(FOLDER) if FOLDER in folders else 0
    family = folders[at - 1] if at and folders[at - 1] not in LLAMA else "llama3"
    return f"{family}_debugmodel"


def _of_preset(name: str, run: _Run) -> Document:
    keys: dict[str, Any] = dict(PRESETS[name].keys)
    if run.registry and name in REGISTRY:
        keys |= REGISTRY[name].keys
    if any(change.key in TOKENS for change in run.changes):
        micro, sequence = keys.pop("training.local_batch_size"), keys.pop("training.seq_len")
        keys |= dict(zip(TOKENS, (micro * sequence, sequence), strict=True))
    where = f"torchtitan's {name}"
    places: dict[Path, str] = {(): where}
    return overlay(Document({}, places), (Change(key, value, where) for key, value in keys.items()))


def _read(document: Document, piece: Piece, context: Context, run: _Run | None) -> Piece:
    keys = Keyed(document, rows_of(document, KEYS), piece)
    version = _version(keys, context, run is not None and run.registry)
    layers = parts.model(keys, piece)
    sizes = mesh.degrees(keys, piece)
    world = ranks(run.launch, piece) if run else None
    whole = mesh.world(keys, piece, sizes, world)
    sharded = mesh.strategy(keys, piece, sizes, whole, world is not None)
    mesh.pipeline(keys, piece, sizes, layers)
    parts.batch(keys, piece, sizes, whole)
    parts.precision(keys, piece, sizes, sharded)
    for part in (parts.float8, parts.optimizer, parts.recompute, parts.compiled):
        part(keys, piece)
    if parts.saves(keys, piece):
        fill(piece, (KEPT,), version)
    if run and run.scripted:
        fill(piece, (ALLOCATOR,), version)
    if sizes.tensor == 1:
        fill(piece, LOSS_FILLED, version)
    fill(piece, MASKED.get(f"{keys.raw('model.name')}", ()), version)
    fill(piece, FILLED, version)
    if REPLICATED in (one.value for one in _said(piece, "parallel.strategy")):
        fill(piece, (BUCKETS,), version)
    keys.finish()
    _moot(keys, piece)
    return piece


def _version(keys: Keyed, context: Context, registry: bool) -> str:
    """The release whose defaults hold: as given, or the last that reads such a configuration (empty: the newest)."""
    given = context.versions.get(NAME, "")
    if registry or parse_version(given) is not None:
        return given
    old = any(keys.has(f"{place}.{key}") for place in PLACES[1:] for key in MESH_KEYS)
    return OLD_VERSION.value if old or keys.has("training.data_parallel_degree") else TOML_VERSION.value


def _said(piece: Piece, path: str) -> list[Given | Filled]:
    """What the piece says of a key of the plan: given, filled, or nothing."""
    return [held[path] for held in (piece.given, piece.filled) if path in held]


def _moot(keys: Keyed, piece: Piece) -> None:
    """Take back what is not counted of a part that is switched off: 8-bit products, evaluation."""
    low = any("fp8" in f"{one.value}" for one in _said(piece, "precision.compute"))
    off = tuple(f"{one}." for one in EVALUATION if keys.raw(f"{one}.enable") is not True)
    off += () if low else tuple(f"{one}." for one in (*FLOAT8, *MX, "quantize"))
    piece.uncounted = [one for one in piece.uncounted if not one.path.startswith(off)]
