"""LLaMA-Factory's YAML, and the command lines that start it, to a piece of a plan."""

from __future__ import annotations

import os
from dataclasses import replace

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_bundled import LLAMAFACTORY_BUNDLED
from trainledger.facts.import_llamafactory import (
    ADAPTER_SAME,
    BITS,
    BITS_SAME,
    FLASH,
    LLAMAFACTORY_FILLED,
    LLAMAFACTORY_KEYS,
    LLAMAFACTORY_NEWEST,
    LOSSES,
    METHODS,
    NO_SEARCH,
    OFT_SIZES,
    PADDING,
    STAGES,
)
from trainledger.facts.import_rows import CERTAIN, PERHAPS, RATHER, Means
from trainledger.facts.option_row import Direction
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.front_end import FrontEnd, overlaid
from trainledger.importers.inputs import Input
from trainledger.importers.launched import Line, launch, named_file, ranks, split
from trainledger.importers.llamafactory_freeze import trained
from trainledger.importers.llamafactory_trained import optimizer, precision, recompute
from trainledger.importers.piece import Given, Piece, Rank
from trainledger.importers.script import Command
from trainledger.importers.shell_words import Word

NAME, PACKAGE = "LLaMA-Factory", "llamafactory"
CLI = ("llamafactory-cli", "lmf")
MARKS = (*CLI, "src/train.py", "src/train_bash.py", "train_bash.py", "llamafactory.cli", "llamafactory.launcher")
_OWN = (
    "stage", "finetuning_type", "cutoff_len", "pure_bf16", "quantization_bit", "neat_packing", "dataset_dir",
    "freeze_trainable_layers", "use_unsloth_gc", "disable_gradient_checkpointing",
)  # fmt: skip
_ENDINGS = (".yaml", ".yml", ".json")
_V1 = frozenset(("model_class", "kernel_config", "dist_config", "quant_config", "peft_config", "train_dataset"))
_LAUNCH = ("nproc_per_node", "nnodes", "node_rank", "master_addr", "master_port", "num_processes", "config_file")


def identify(given: Input) -> float:
    """Whether an input is LLaMA-Factory's: keys that only it has, or a command that starts it."""
    if given.script is not None:
        return max((_sure(command, given.folder) for command in given.script.commands), default=0.0)
    own = sum(name in given.data for name in _OWN)
    if _is_v1(given):
        return CERTAIN
    if "model_name_or_path" in given.data and own:
        return CERTAIN
    return PERHAPS if own > 1 else 0.0


def _is_v1(given: Input) -> bool:
    """Whether a file is one of the trainer that LLaMA-Factory starts with USE_V1=1, whose keys are others."""
    return given.script is None and "model" in given.data and len(_V1 & set(given.data)) > 1


def extract(given: Input, context: Context) -> Piece:
    """Read LLaMA-Factory's keys as the plan's. What a command line says counts before the file that it names.

    Raises InputError where a file that a command names cannot be read.
    """
    if _is_v1(given):
        found = f"{given.name}: keys of LLaMA-Factory's v1 trainer ({', '.join(sorted(_V1 & set(given.data)))})"
        fix = "Give a plan of the run: trainledger schema prints its keys."
        raise InputError([Problem("input", found, "its trainer by model_name_or_path can be read so far", fix)])
    piece = Piece(NAME, given.name, Rank.COMMAND if given.script else Rank.FILE)
    document, folder = given.document or Document(None, {}), given.folder
    world: Given | None = None
    if given.script is not None:
        document, folder, world = _started(given, piece)
    front = FrontEnd(document, LLAMAFACTORY_KEYS, piece, context.versions.get(PACKAGE))
    front.release(LLAMAFACTORY_NEWEST)
    if front.own.text("model_name_or_path"):
        front.same(("model_name_or_path", "model_name_or_path"))
    else:
        front.needs("model_name_or_path", "the model that is trained is needed")
    for name in ("use_mca", "use_megatron_bridge"):
        if front.own.flag(name):
            front.refuse(name, "Megatron under LLaMA-Factory cannot be read", "Give a plan of the run.")
    _task(front)
    _batch(front)
    _adapter(front)
    _stack(front)
    front.settings("deepspeed", LLAMAFACTORY_BUNDLED, folder)
    for part in (precision, recompute, optimizer):
        part(front)
    front.trainer()
    front.run(context)
    trained(front, folder)
    if world is not None:
        piece.give("parallel.world", world.value, world.where)
    front.finish()
    return piece


def _task(front: FrontEnd) -> None:
    stage = front.word("stage", STAGES) or "sft"
    loss = front.own.text("pref_loss") or ""
    where = front.own.where("stage", "model_name_or_path")
    if stage == "dpo" and loss in LOSSES:
        front.hand("_task", LOSSES[loss], "pref_loss")
    else:
        front.args["_task"] = Given(STAGES[stage], where)


def _batch(front: FrontEnd) -> None:
    """The length: what the collator pads `cutoff_len` to. A packed sample of supervised training has one token more."""
    own, stage = front.own, front.own.text("stage") or "sft"
    packed = own.flag("packing", "neat_packing")
    beyond = PADDING.beyond if packed and stage == "sft" else 0
    multiple = PADDING.multiple if stage in PADDING.stages else 1
    length = own.whole("cutoff_len", least=1)
    if length is not None:
        front.hand("cutoff_len", -(-(length + beyond) // multiple) * multiple, "cutoff_len")
    rows = [row for row in LLAMAFACTORY_FILLED if row.path == "cutoff_len"]
    front.fill(replace(row, value=-(-(int(str(row.value)) + beyond) // multiple) * multiple) for row in rows)
    if packed:
        front.hand("packing", True, "packing", "neat_packing")


def _adapter(front: FrontEnd) -> None:
    """LoRA, DoRA and OFT, and weights in fewer bits."""
    own = front.own
    kind = front.word("finetuning_type", METHODS) or "lora"
    if kind == "lora":
        front.args["use_peft"] = Given(True, own.where("finetuning_type", "model_name_or_path"))
        front.same(*ADAPTER_SAME)
        target = own.texts("lora_target")
        front.hand("lora_target_modules", ["all-linear"] if target == ["all"] else target, "lora_target")
        front.hand("lora_modules_to_save", own.texts("additional_target"), "additional_target")
        front.fill(LLAMAFACTORY_FILLED, "lora_r", "lora_dropout", "lora_target_modules")
        front.same(("ddp_find_unused_parameters", "ddp_find_unused_parameters"))
        front.fill((NO_SEARCH,))
    elif kind == "oft":
        _oft(front)
    _bits(front, kind)


def _oft(front: FrontEnd) -> None:
    own, piece = front.own, front.piece
    where = own.where("finetuning_type")
    target = own.texts("oft_target") or ["all"]
    piece.give("adapter.kind", "oft", where)
    piece.give("adapter.targets", "all-linear" if target == ["all"] else target, own.where("oft_target") or where)
    for path, name in OFT_SIZES:
        if size := own.whole(name):
            piece.give(path, size, own.where(name))


def _bits(front: FrontEnd, kind: str) -> None:
    own = front.own
    bits, method = own.whole("quantization_bit"), own.text("quantization_method") or "bnb"
    if bits is None:
        return
    if kind not in ("lora", "oft"):
        front.refuse("quantization_bit", "quantised weights need LoRA or OFT", "Give finetuning_type: lora.")
    elif method not in ("bnb", "bitsandbytes") or bits not in BITS:
        front.refuse("quantization_bit", "4 or 8 bits of bitsandbytes can be read", "Leave quantization_method out.")
    elif bits == max(BITS):
        front.hand("load_in_8bit", True, "quantization_bit")
    else:
        front.hand("load_in_4bit", True, "quantization_bit")
        front.same(*BITS_SAME)
        front.fill(LLAMAFACTORY_FILLED, "bnb_4bit_quant_type", "bnb_4bit_use_double_quant")


def _stack(front: FrontEnd) -> None:
    own = front.own
    if word := front.word("flash_attn", FLASH):
        front.hand("attn_implementation", FLASH[word] or None, "flash_attn")
    if own.flag("enable_liger_kernel"):
        front.hand("use_liger_kernel", True, "enable_liger_kernel")
        if own.text("stage") not in (None, "pt", "sft"):
            kernels = {"fused_linear_cross_entropy": False, "cross_entropy": True}
            front.hand("liger_kernel_config", kernels, "enable_liger_kernel")
    if own.flag("upcast_layernorm") and not own.has("deepspeed"):  # whose engine casts them again
        front.piece.give("precision.norms", "fp32", own.where("upcast_layernorm"))
    if own.has("adapter_name_or_path") and own.flag("create_new_adapter"):
        front.uncounted("adapter_name_or_path", own.where("adapter_name_or_path"), Direction.LOW)


# Commands -----------------------------------------------------------------------------------------------------------


def _sure(command: Command, folder: str) -> float:
    """How sure it is that a command trains with LLaMA-Factory: a script `src/train.py` may be another project's, which
    the keys of the file that it is given tell."""
    parts = split(command, MARKS)
    if parts is None:
        return 0.0
    words = [word.text for word in parts[1]]
    if any(word == "--stage" or word.startswith("--stage=") for word in words):
        return CERTAIN
    own = any(os.path.basename(word) in CLI for word in command.texts)
    if own:
        return CERTAIN if "train" in words[:1] else 0.0
    return max((_kept(word, folder) for word in parts[1] if word.text.endswith(_ENDINGS)), default=0.0)


def _kept(word: Word, folder: str) -> float:
    """How sure it is that a file which a command names is LLaMA-Factory's; one that is not there may be."""
    try:
        return identify(named_file(word, folder))
    except InputError:
        return RATHER


def _started(given: Input, piece: Piece) -> tuple[Document, str, Given | None]:
    """The last command's keys, over the file that it names if it names one; that file's folder; its processes."""
    assert given.script is not None
    command = next(one for one in reversed(given.script.commands) if _sure(one, given.folder))
    before, after = split(command, MARKS) or ((), ())
    line = Line(command, after)
    world = ranks(piece, command, before)
    line.settle(piece, tuple(row.name for row in LLAMAFACTORY_KEYS if row.means is Means.READ))
    launch(piece, command, before)
    below, folder = Document(None, {}), given.folder
    for word in line.rest:
        if word.text.endswith(_ENDINGS):
            file = named_file(word, given.folder)
            below, folder = file.document or below, file.folder
        elif "=" in word.text and word.text != "train":
            name, _, value = word.text.partition("=")
            line.take(name, value, word)
    values = {name: one for name, one in line.values.items() if name not in _LAUNCH}
    return overlaid(below if below.data is not None else Document({}, {(): given.name}), values), folder, world
