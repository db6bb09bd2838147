"""TrainingArguments in JSON or YAML, alone or with TRL's and a script's arguments (`--config file.yaml`)."""

from __future__ import annotations

from trainledger.facts.import_hf import LENGTHS
from trainledger.facts.import_hf_trl import SIGNS, TASK_SIGNS
from trainledger.facts.import_rows import LIKELY, PERHAPS
from trainledger.importers.environment import environment_keys
from trainledger.importers.formats import Context
from trainledger.importers.hf_run import KIND, ROWS, TASK, TRL, run_piece
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.piece import Given, Piece
from trainledger.importers.shell_words import Word

_STRONG = ("per_device_train_batch_size", "model_name_or_path", "gradient_checkpointing_kwargs")
_WEAK = ("output_dir", "learning_rate", "num_train_epochs", "gradient_accumulation_steps", *LENGTHS)


def identify(given: Input) -> float:
    """Likely where a name stands that few others have; perhaps where two stand that many have."""
    if any(name in given.data for name in _STRONG):
        return LIKELY
    return PERHAPS if sum(name in given.data for name in _WEAK) > 1 else 0


def extract(given: Input, context: Context) -> Piece:
    """What the arguments say. The script that named this file says which trainer runs; without one, names that only TRL
    has do."""
    piece = Piece("TrainingArguments", given.name)
    if given.document is None:
        return piece
    keyed = Keyed(given.document, tuple(ROWS.values()), piece)
    args = {name: Given(value, keyed.where(name)) for name, value in keyed.data().items()}
    env = args.pop("env", None)
    if env is not None and isinstance(env.value, dict):  # TRL sets these for the run
        place = keyed.document.where(("env",))
        environment_keys(piece, {str(name): Word(str(value), place) for name, value in env.value.items()})
    sign = next((name for name in args if name in SIGNS), "")
    if sign or context.fact(KIND):
        args[TRL] = Given(True, args[sign].where if sign else "")
    if not any("task" in before.given for before in context.pieces):
        task = next((name for name in TASK_SIGNS if name in args), "")
        if task or sign:
            args[TASK] = Given(TASK_SIGNS.get(task, "sft"), args[task or sign].where)
    if TRL in args and TASK in args:
        piece.format = f"TRL {args[TASK].value} arguments"
    run_piece(piece, args, context)
    return piece
