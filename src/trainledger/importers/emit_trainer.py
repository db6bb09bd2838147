"""A run of Hugging Face's Trainer or of TRL's as a launch script: which program, with which arguments."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.importers.emit import ARGS, ENV, LAUNCH, Lever, Line, Names, Said
from trainledger.importers.emit_hf import LENGTH, trainer_lines, trl, variables
from trainledger.importers.emit_model import hub_model
from trainledger.importers.emit_text import script

PROGRAM = "program"
# Programs by task: a script of Transformers', one of the user's own, TRL's.
PRETRAIN, OWN_SCRIPT = "run_clm.py", "train.py"
TRL_NAMES = {"bnb_4bit_use_double_quant": "use_bnb_nested_quant"}
RENAMED = {  # arguments that a script of Transformers or of the user has under another name than TRL's
    PRETRAIN: {LENGTH: "block_size", "use_peft": "use_lora"},
    OWN_SCRIPT: {LENGTH: "model_max_length", "use_peft": "use_lora"},
}


def arguments(said: Said, names: Names) -> tuple[tuple[Line, ...], Mapping[str, object] | None]:
    """The arguments and variables; the model's configuration where it is written beside the script."""
    name, model = hub_model(said)
    first = Line(ARGS, "model_name_or_path", name or f"./{names.model}", "model")
    return (*variables(said), first, *trainer_lines(said)), model


def programs(said: Said) -> Lever:
    """The program that is started: by the task; what its file's defaults come to tells which of two it is."""
    task = said.get("task")
    own = PRETRAIN if task == "pretrain" else OWN_SCRIPT
    found = [f"{task}.py", own] if trl(said) else [own, f"{task}.py"]
    kept = found if task in ("pretrain", "sft") else found[:1]
    return tuple((Line(LAUNCH, PROGRAM, name, "task"),) for name in kept if name != "pretrain.py")


def trainer_script(lines: tuple[Line, ...], launcher: str, head: tuple[str, ...]) -> str:
    """The script: variables, arguments under the program's names for them, the launcher's line."""
    program = next(str(line.value) for line in lines if line.key == PROGRAM)
    kept = renamed(lines, RENAMED.get(program, TRL_NAMES))
    return script(kept, f"{launcher} {program}", head)


def renamed(lines: tuple[Line, ...], names: Mapping[str, str]) -> list[Line]:
    """The arguments under a program's names for them, and the variables."""
    kept = (line for line in lines if line.part in (ARGS, ENV))
    return [Line(line.part, names.get(line.key, line.key), line.value, line.path) for line in kept]
