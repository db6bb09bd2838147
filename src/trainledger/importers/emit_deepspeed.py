"""DeepSpeed's configuration, with a launch script that has the Trainer's arguments."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.export import NODE
from trainledger.importers.emit import OWN, Line, Names, Said, Sheet, nested, refuse
from trainledger.importers.emit_hf import dtypes
from trainledger.importers.emit_sharding import stage, zero
from trainledger.importers.emit_text import json_file
from trainledger.importers.emit_trainer import arguments, programs, trainer_script

FRAMEWORK, SUFFIX = "transformers", ".json"
NODES, EACH = "num_nodes", "num_gpus"


def sheet(said: Said, names: Names) -> Sheet:
    """The configuration and the arguments. Raises InputError where DeepSpeed does not shard."""
    if stage(said) is None:
        raise refuse(said, "parallel.strategy", "DeepSpeed runs zero1, zero2 and zero3")
    lines, model = arguments(said, names)
    own = (Line(OWN, name, part) for name, part in zero(said).items())
    nodes, each = said.nodes(NODE.devices)
    launch = (Line("launcher", NODES, nodes), Line("launcher", EACH, each, "parallel.world"))
    file = Line("args", "deepspeed", names.main, "parallel.strategy")
    return Sheet((*own, *launch, *lines, file), (dtypes(said), programs(said)), model)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The configuration, which has no comments, and the script."""
    yield names.main, json_file(nested((line.key, line.value) for line in lines if line.part == OWN))
    options = " ".join(f"--{line.key} {line.value}" for line in lines if line.part == "launcher")
    yield names.script, trainer_script(lines, f"deepspeed {options}", head)
