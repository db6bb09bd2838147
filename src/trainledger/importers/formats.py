"""The formats that are recognised: for each, the module that identifies and reads it. Modules load when asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.importers.inputs import Input
from trainledger.importers.piece import Piece

MODEL = "model folder or config.json"
# name of a format -> its module here; a module has identify(Input) -> float (0: not this; 1: certain) and
# extract(Input, Context) -> Piece. Of several that identify an input, the surest reads it.
FORMATS: dict[str, str] = {
    MODEL: "hf_model",
    "adapter_config.json": "peft_config",
    "DeepSpeed configuration": "deepspeed_json",
    "Megatron-LM arguments": "megatron",
    "Megatron-Bridge or NeMo 2 configuration": "megatron_bridge",
    "verl command line or configuration": "verl",
    "OpenRLHF command line": "openrlhf",
    "Axolotl": "axolotl",
    "LLaMA-Factory": "llamafactory",
    "ms-swift": "swift",
    "accelerate configuration": "accelerate_yaml",
    "Trainer's FSDP configuration": "fsdp_file",
    "TrainingArguments": "hf_arguments",
    "torchtune": "torchtune",
    "torchtitan": "torchtitan",
    "litgpt": "litgpt",
    "launch script": "launch_script",
}

# what a plan can be written as -> its module here, which has FRAMEWORK, SUFFIX, sheet(Said, Names) -> Sheet and
# files(lines, Names, head) -> names and texts
EMITTERS: dict[str, str] = {
    "deepspeed": "emit_deepspeed",
    "accelerate": "emit_accelerate",
    "axolotl": "emit_axolotl",
    "llama-factory": "emit_llamafactory",
    "torchtune": "emit_torchtune",
    "torchtitan": "emit_torchtitan",
    "megatron": "emit_megatron",
    "trl": "emit_trl",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What an importer may ask: releases that were given (`--framework-version`), and the pieces read before it."""

    versions: dict[str, str] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()

    def fact(self, name: str) -> Any:
        """What another piece says under this name; None where none does."""
        return next((piece.facts[name].value for piece in self.pieces if name in piece.facts), None)


def recognised(given: Input) -> str:
    """The format that is surest of an input; empty when none is."""
    scores = {
        name: float(import_module(f"trainledger.importers.{module}").identify(given))
        for name, module in FORMATS.items()
    }
    best = max(scores, key=lambda name: scores[name], default="")
    return best if best and scores[best] > 0 else ""


def format_of(given: Input) -> str:
    """The format of an input. Raises InputError when none is recognised."""
    best = recognised(given)
    if not best:
        known = ", ".join(FORMATS)
        if given.document is None and given.script is None:
            found = f"{given.name}: a folder without config.json or adapter_config.json"
            raise InputError([Problem("", found, "a model's folder, or files", "Name the files in it.")])
        raise InputError(
            [
                Problem(
                    "",
                    f"{given.name}: not recognised",
                    f"a plan, or one of {known}",
                    "Name the key that says what is trained.",
                )
            ]
        )
    return best


def extract(given: Input, name: str, context: Context) -> Piece:
    """What an input says, read by its format's importer."""
    piece: Piece = import_module(f"trainledger.importers.{FORMATS[name]}").extract(given, context)
    return piece
