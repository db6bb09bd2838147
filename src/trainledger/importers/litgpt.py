"""LitGPT: a configuration's YAML, or a `litgpt finetune_lora`, `finetune_full` or `pretrain` line with its flags."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainledger.facts.import_litgpt import (
    ADAPTER,
    ALONE_FILLED,
    COMMANDS,
    FILLED,
    FULL,
    FULL_SPREAD,
    KEYS,
    LORA,
    LORA_SPREAD,
    PRETRAIN,
    SCRIPTS_OF,
    SPREAD_FILLED,
    TRAIN_FILLED,
    TUNE_FILLED,
)
from trainledger.facts.litgpt import KNOWN, NAME
from trainledger.facts.versions import parse_version
from trainledger.importers import litgpt_parts as parts
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.launch import only_run
from trainledger.importers.overlay import (
    Change,
    Wanted,
    config_of,
    fill,
    flags,
    rows_of,
)
from trainledger.importers.own_file import Own, extracted
from trainledger.importers.piece import Piece
from trainledger.importers.script import Command, Script
from trainledger.importers.shell_words import Word

FACT = "litgpt.config"
WANTED = Wanted(FACT, "Keep the file at an address beside the script.")
_ROWS = {row.name: row for row in KEYS}


def identify(given: Input) -> float:
    """1 for a `litgpt` line that trains; nearly that for a mapping with LitGPT's `train` and a checkpoint or model."""
    if given.script is not None:
        return float(any(True for _ in _runs(given.script)))
    data, train = given.data, given.data.get("train")
    named = any(isinstance(data.get(key), str) for key in ("checkpoint_dir", "model_name"))
    if isinstance(train, dict) and {"micro_batch_size", "global_batch_size"} & set(train):
        return 0.95 if named else 0.6
    if isinstance(train, dict) and named:
        return 0.7
    return 0.8 if named and any(str(key).startswith("lora_") for key in data) else 0.0


def extract(given: Input, context: Context) -> Piece:
    """The piece of a configuration, or of a command with its configuration. Raises InputError for several commands."""
    return extracted(given, context, Own(NAME, FACT, _ROWS, _command, _config, _read))


@dataclass(frozen=True, slots=True)
class _Run:
    """A command: what it trains, the configuration that it names, what its flags say."""

    kind: str
    where: str
    config: Word | None
    changes: tuple[Change, ...]
    env: Mapping[str, Word]


def _runs(script: Script) -> Iterator[tuple[str, Command, int]]:
    """Every command that trains: its kind, itself, and where its flags start."""
    for command in script.commands:
        texts = command.texts
        for at, text in enumerate(texts):
            after = texts[at + 1] if at + 1 < len(texts) else ""
            if os.path.basename(text) == "litgpt" and after in COMMANDS:
                more = texts[at + 1 + 1] if at + 1 + 1 < len(texts) else ""
                two = f"{after}_{more}"
                yield (COMMANDS[two].value if two in COMMANDS else COMMANDS[after].value), command, at + 1
                break
            path = next((name for name in SCRIPTS_OF if text.endswith(name)), "")
            if path:
                yield SCRIPTS_OF[path].value, command, at
                break


def _command(script: Script) -> _Run:
    found = list(_runs(script))
    only_run([command.words[at].where for _, command, at in found])
    kind, command, at = found[0]
    words = command.words[at:]
    changes = list(flags(words))
    model = "model_name" if kind == PRETRAIN else "checkpoint_dir"
    for word in words[1 : 1 + 1 + 1]:
        if word.text.startswith("-"):
            break
        if word.text not in (LORA, FULL, ADAPTER, "adapter_v2"):
            changes.insert(0, Change(model, word.text, word.where, word.known))
    config = next((one for one in changes if one.key == "config"), None)
    kept = tuple(one for one in changes if one is not config)
    return _Run(kind, words[0].where, Word(f"{config.value}", config.where) if config else None, kept, command.env)


def _config(run: _Run, given: Input, context: Context) -> Document:
    return config_of(run.config, given, context, WANTED)


def _kind(keys: Keyed) -> str:
    """What a configuration trains, by the keys that only one script has."""
    if keys.has("model_name") or keys.has("initial_checkpoint_dir"):
        return PRETRAIN
    return LORA if any(str(key).startswith("lora_") for key in keys.data()) else FULL


def _read(document: Document, piece: Piece, context: Context, run: _Run | None) -> Piece:
    keys = Keyed(document, rows_of(document, KEYS), piece)
    kind = run.kind if run else _kind(keys)
    if kind == ADAPTER:
        piece.refuse(
            "", "finetune_adapter", "finetune_lora, finetune_full and pretrain are read", where=run.where if run else ""
        )
    given = context.versions.get(NAME, "")
    version = given if parse_version(given) else KNOWN.version
    parts.model(keys, piece)
    world = parts.devices(keys, piece, kind == PRETRAIN)
    parts.precision(keys, piece, world > 1)
    if kind == LORA:
        parts.adapter(keys, piece)
    parts.optimizer(keys, piece, kind == PRETRAIN)
    parts.batch(keys, piece, world, kind == PRETRAIN)
    fill(piece, TRAIN_FILLED if kind == PRETRAIN else TUNE_FILLED, version)
    if world > 1:
        fill(piece, LORA_SPREAD if kind == LORA else FULL_SPREAD, version)
        fill(piece, SPREAD_FILLED, version)
    else:
        fill(piece, ALONE_FILLED, version)
    fill(piece, FILLED, version)
    keys.finish()
    return piece
