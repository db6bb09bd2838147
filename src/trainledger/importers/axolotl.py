"""Axolotl's YAML, and the command lines that start it, to a piece of a plan."""

from __future__ import annotations

from trainledger.facts.import_axolotl import (
    AXOLOTL_FILLED,
    AXOLOTL_KEYS,
    AXOLOTL_NEWEST,
    AXOLOTL_TRL,
    MISTAKEN,
    SAMPLING_SAME,
    TASKS,
)
from trainledger.facts.import_bundled import AXOLOTL_BUNDLED
from trainledger.facts.import_rows import CERTAIN, PERHAPS, Means
from trainledger.facts.preferences import SAMPLED
from trainledger.facts.versions import at_least
from trainledger.importers.axolotl_model import adapter, attention, kernels, precision, recompute
from trainledger.importers.axolotl_parallel import degrees, fsdp
from trainledger.importers.axolotl_steps import batch, optimizer, trained
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.front_end import FrontEnd, overlaid
from trainledger.importers.inputs import Input
from trainledger.importers.launched import Line, launch, named_file, ranks, split
from trainledger.importers.piece import Given, Piece, Rank
from trainledger.importers.script import Command
from trainledger.importers.shell_words import Word

NAME, PACKAGE = "Axolotl", "axolotl"
MARKS = ("axolotl.cli.train", "axolotl", "scripts/finetune.py", "axolotl.cli.preprocess")
VERBS = ("train", "preprocess")
LAUNCH = ("num_processes", "launcher", "main_process_port", "config_file", "nproc_per_node", "nnodes")
_TYPICAL = (
    "sequence_len", "micro_batch_size", "datasets", "adapter", "lora_r", "lora_target_linear", "sample_packing",
    "pretraining_dataset", "val_set_size", "flash_attention", "num_epochs", "dataset_prepared_path", "load_in_4bit",
)  # fmt: skip


def identify(given: Input) -> float:
    """Whether an input is Axolotl's: `base_model` and keys that go with it, or a command that starts Axolotl."""
    if given.script is not None:
        return CERTAIN if any(_files(command) for command in given.script.commands) else 0.0
    if "base_model" not in given.data:
        return 0.0
    return CERTAIN if any(name in given.data for name in _TYPICAL) else PERHAPS


def extract(given: Input, context: Context) -> Piece:
    """Read Axolotl's YAML as the plan's keys. What a command line says counts before the file that it names.

    Raises InputError where a file that a command names cannot be read.
    """
    piece = Piece(NAME, given.name, Rank.COMMAND if given.script else Rank.FILE)
    document, folder = given.document or Document(None, {}), given.folder
    world: Given | None = None
    if given.script is not None:
        document, folder, world = _started(given, piece)
    front = FrontEnd(document, AXOLOTL_KEYS, piece, context.versions.get(PACKAGE))
    front.release(AXOLOTL_NEWEST)
    if not isinstance(document.data, dict) or not front.own.text("base_model"):
        front.needs("base_model", "the model that is trained is needed")
    else:
        front.hand("model_name_or_path", front.own.text("base_model"), "base_model")
    _task(front)
    for part in (batch, adapter, precision, attention, recompute, optimizer, kernels):
        part(front)
    front.settings("deepspeed", AXOLOTL_BUNDLED, folder)
    fsdp(front)
    front.fill(AXOLOTL_FILLED, "max_grad_norm")
    front.run(context)
    degrees(front, world)
    trained(front)
    _listed(front)
    return piece


def _task(front: FrontEnd) -> None:
    """The task, by `rl`, `reward_model` and `pretraining_dataset`."""
    front.hand("_trl", bool(front.own.raw("rl")) or None, "rl")
    if word := front.word("rl", TASKS):
        front.hand("_task", TASKS[word], "rl")
        front.same(("cpo_alpha", "cpo_alpha"), ("rpo_alpha", "rpo_alpha"))
        front.same(("use_weighting", "dpo_use_weighting"), ("loss_type", "dpo_loss_type"))
        for argument, (section, name) in SAMPLING_SAME if TASKS[word] == SAMPLED else ():
            inner = front.own.below(section)
            if inner.has(name):
                front.args[argument] = Given(inner.raw(name), inner.where(name))
        release = front.version or AXOLOTL_NEWEST.value
        row = next(one for one in AXOLOTL_TRL if at_least(str(release), one.since))
        front.piece.fill(row.path, row.value, row.why, row.source)
    elif front.own.flag("reward_model"):
        front.hand("_task", "reward", "reward_model")
    elif front.own.raw("pretraining_dataset"):
        front.hand("_task", "pretrain", "pretraining_dataset")
    else:
        front.args["_task"] = Given("sft", front.own.where("datasets", "base_model"))


def _listed(front: FrontEnd) -> None:
    """Keys that are unknown, with the one that people mean by them, and those that are not counted."""
    front.trainer()
    front.finish()
    for at, one in enumerate(front.piece.unknown):
        if one.path in MISTAKEN:
            front.piece.unknown[at] = type(one)(one.path, one.where, MISTAKEN[one.path])


# Commands -----------------------------------------------------------------------------------------------------------


def _files(command: Command) -> list[Word]:
    """The YAML files that a command hands Axolotl."""
    parts = split(command, MARKS)
    return [word for word in parts[1] if word.text.endswith((".yml", ".yaml"))] if parts else []


def _started(given: Input, piece: Piece) -> tuple[Document, str, Given | None]:
    """The file that the last command with one names, with the command's own keys over it, its folder, and the number
    of processes."""
    assert given.script is not None
    command = next(one for one in reversed(given.script.commands) if _files(one))
    before, after = split(command, MARKS) or ((), ())
    line = Line(command, [word for word in after if word.text not in VERBS])
    line.settle(piece, tuple(row.name for row in AXOLOTL_KEYS if row.means is Means.READ))
    launch(piece, command, [*before, *after])
    below = named_file(_files(command)[0], given.folder)
    values = {name: one for name, one in line.values.items() if name not in LAUNCH}
    assert below.document is not None
    return overlaid(below.document, values), below.folder, ranks(piece, command, [*before, *after])
