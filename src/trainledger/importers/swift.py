"""ms-swift's command lines (`swift sft | pt | rlhf ...`) and files, to a piece of a plan."""

from __future__ import annotations

import os

from trainledger.facts.import_rows import CERTAIN, LIKELY
from trainledger.facts.import_swift import SWIFT_KEYS, SWIFT_NEWEST, SWIFT_TRL, TASKS
from trainledger.facts.option_row import Direction
from trainledger.facts.preferences import ALONE, SAMPLED
from trainledger.importers.document import Document
from trainledger.importers.draft import Uncounted
from trainledger.importers.formats import Context
from trainledger.importers.front_end import FrontEnd, overlaid
from trainledger.importers.inputs import Input
from trainledger.importers.launched import Line, launch, named_file, ranks, split, world_of
from trainledger.importers.piece import Given, Piece, Rank
from trainledger.importers.script import Command
from trainledger.importers.shell_words import Word
from trainledger.importers.swift_roles import grpo_roles
from trainledger.importers.swift_run import adapter, batch, evaluation, optimizer, parallel, precision, recompute, stack

NAME, PACKAGE = "ms-swift", "ms-swift"
VERBS = {"sft": "sft", "pt": "pretrain", "rlhf": "rlhf", "dpo": "dpo", "orpo": "orpo", "simpo": "simpo"}
_FILES = {f"{verb}.py": verb for verb in VERBS} | {f"llm_{verb}.py": verb for verb in VERBS}
_ENDINGS = (".yaml", ".yml", ".json")
_OWN = ("tuner_type", "train_type", "sft_type", "attn_impl", "quant_bits", "model_author", "model_id_or_path")
_COMMON = ("dataset", "per_device_train_batch_size", "torch_dtype", "max_length", "learning_rate")


def identify(given: Input) -> float:
    """Whether an input is ms-swift's: a command `swift sft` and the like, or a file of its keys."""
    if given.script is not None:
        return CERTAIN if any(_verb(command) for command in given.script.commands) else 0.0
    data = given.data
    if isinstance(data.get("model", data.get("model_id_or_path")), str) and any(name in data for name in _OWN):
        return CERTAIN if any(name in data for name in _COMMON) else LIKELY
    return 0.0


def extract(given: Input, context: Context) -> Piece:
    """Read ms-swift's keys as the plan's. What a command line says counts before the file that it names.

    Raises InputError where a file that a command names cannot be read.
    """
    piece = Piece(NAME, given.name, Rank.COMMAND if given.script else Rank.FILE)
    document, folder, verb = given.document or Document(None, {}), given.folder, ""
    world: Given | None = None
    if given.script is not None:
        command = next(one for one in reversed(given.script.commands) if _verb(one))
        verb = _verb(command)
        document, folder, world = _started(given, command, piece)
    front = FrontEnd(document, SWIFT_KEYS, piece, context.versions.get(PACKAGE))
    front.release(SWIFT_NEWEST)
    if front.own.text("model", "model_id_or_path"):
        front.hand("model_name_or_path", front.own.text("model", "model_id_or_path"), "model", "model_id_or_path")
    else:
        front.needs("model", "the model that is trained is needed", "Give --model.")
    _task(front, verb)
    adapter(front)
    precision(front)
    batch(front, world)
    recompute(front, world)
    optimizer(front)
    stack(front)
    parallel(front, folder)
    if front.args["_task"].value == SAMPLED:
        grpo_roles(front)
    else:
        evaluation(front)
    front.trainer()
    front.run(context)
    if world is not None:
        piece.give("parallel.world", world.value, world.where)
    front.finish()
    return piece


def _task(front: FrontEnd, verb: str) -> None:
    """The task: the command's verb and, under rlhf, `--rlhf_type`."""
    own = front.own
    where = own.where("rlhf_type", "model", "model_id_or_path")
    task = VERBS.get(verb, "sft")
    if verb == "rlhf" or (not verb and own.has("rlhf_type")):
        task = TASKS[front.word("rlhf_type", TASKS) or "dpo"]  # CPO differs from SimPO in small numbers only
    if task == "dpo":
        front.same(("rpo_alpha", "rpo_alpha"))
    if task in ALONE:
        front.same(("cpo_alpha", "cpo_alpha"))
        front.piece.fill(SWIFT_TRL.path, SWIFT_TRL.value, SWIFT_TRL.why, SWIFT_TRL.source)
    front.args["_task"] = Given(task, where)


# Commands -----------------------------------------------------------------------------------------------------------


def _verb(command: Command) -> str:
    """What a command asks ms-swift to do (sft, pt, rlhf); empty where it is none of its training commands."""
    texts = command.texts
    for at, text in enumerate(texts):
        name = os.path.basename(text)
        if name == "swift" and "megatron" not in texts[:at]:
            return texts[at + 1] if at + 1 < len(texts) and texts[at + 1] in VERBS else ""
        folders = text.split("/")[:-1]
        if name in _FILES and {"swift", "llm", "cli"} & set(folders) | ({"llm"} if name.startswith("llm_") else set()):
            return _FILES[name]
    return ""


def _started(given: Input, command: Command, piece: Piece) -> tuple[Document, str, Given | None]:
    """A command's keys, over the file that it names if it names one; that file's folder; its processes."""
    before, after = split(command, ("swift", *_FILES)) or ((), ())
    line = Line(command, [word for at, word in enumerate(after) if at or word.text not in VERBS])
    line.settle(piece, tuple(row.name for row in SWIFT_KEYS if row.means.name == "READ"))
    below, folder = Document({}, {(): given.name}), given.folder
    config = line.values.pop("config", None)
    named = [word for word in line.rest if word.text.endswith(_ENDINGS)]
    if config is not None:
        named.append(Word(str(config.value), config.where))
    for word in named:
        file = named_file(word, given.folder)
        below, folder = file.document or below, file.folder
    launch(piece, command, before)
    world = ranks(piece, command, before, devices=False)
    seen = world_of(command, before) if world is None else None
    if seen is not None and seen.value > 1:
        where = f"{seen.where} (one process, over whose devices the model is spread)"
        piece.uncounted.append(Uncounted("device_map", where, Direction.HIGH.value))
    return overlaid(below, line.values), folder, world
