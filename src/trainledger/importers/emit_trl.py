"""TRL's YAML of one trainer's arguments, with the `trl` line that starts it."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.export import NODE
from trainledger.facts.import_hf_trl import TRL_COMMANDS
from trainledger.facts.preferences import SAMPLED
from trainledger.importers.emit import ARGS, ENV, LAUNCH, Line, Names, Said, Sheet, refuse
from trainledger.importers.emit_hf import dtypes
from trainledger.importers.emit_sharding import arguments as sharding
from trainledger.importers.emit_text import script, yaml_file
from trainledger.importers.emit_trainer import TRL_NAMES, arguments, renamed

FRAMEWORK, SUFFIX = "transformers", ".yaml"
VERBS = ("sft", "dpo", "kto", "grpo", "reward")


def sheet(said: Said, names: Names) -> Sheet:
    """The arguments, what shards among them. Raises InputError for a task that TRL's command does not have."""
    task = said.get("task")
    if not said.partial and (task not in VERBS or task not in TRL_COMMANDS):
        raise refuse(said, "task", f"TRL's command trains one of {', '.join(VERBS)}")
    lines, model = arguments(said, names)
    nodes, _ = said.nodes(NODE.devices)
    launch = (
        Line(LAUNCH, "verb", task, "task"),
        Line(LAUNCH, "num_machines", nodes),
        Line(LAUNCH, "num_processes", said.whole("parallel.world"), "parallel.world"),
    )
    counted = said.get("batch.loss_tokens") if task == SAMPLED else None
    completion = (Line(ARGS, "max_completion_length", counted, "batch.loss_tokens"),) if counted else ()
    return Sheet((*lines, *completion, *sharding(said), *launch), (dtypes(said),), model)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The YAML, and the script."""
    kept = renamed(lines, TRL_NAMES)
    yield names.main, yaml_file([line for line in kept if line.part == ARGS], head)
    held = {line.key: line.value for line in lines if line.part == LAUNCH}
    verb = held.pop("verb")
    options = " ".join(f"--{name} {value}" for name, value in held.items())
    command = f"trl {verb} --config {names.main} {options}"
    yield names.script, script([line for line in lines if line.part == ENV], command, head)
