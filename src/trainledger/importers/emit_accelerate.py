"""accelerate's configuration file, with a launch script that has the Trainer's arguments."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.export import NODE
from trainledger.importers.deepspeed_json import STAGES
from trainledger.importers.emit import OWN, Line, Names, Said, Sheet, nested
from trainledger.importers.emit_hf import HALF, dtypes
from trainledger.importers.emit_sharding import fsdp, mesh, sharded, stage, zero
from trainledger.importers.emit_text import json_file, yaml_file
from trainledger.importers.emit_trainer import arguments, programs, trainer_script
from trainledger.importers.hf_fsdp import TRANSFORMER_WRAP, WRAPPING

FRAMEWORK, SUFFIX = "transformers", ".yaml"
SETTINGS = "deepspeed"  # the part that is DeepSpeed's own file


def sheet(said: Said, names: Names) -> Sheet:
    """The file's lines and the arguments'. Raises InputError for what neither says."""
    lines, model = arguments(said, names)
    ways = []
    for way in dtypes(said):
        half = next((line.key for line in way if line.key in HALF and line.value), "no")
        line = Line(OWN, "mixed_precision", half, "precision.compute")
        ways.append(way if stage(said) is not None else (*way, line))  # accelerate refuses it beside DeepSpeed's file
    return Sheet((*_own(said, names), *lines), (tuple(ways), programs(said)), model)


def _own(said: Said, names: Names) -> Iterator[Line]:
    nodes, _ = said.nodes(NODE.devices)
    world, strategy = said.whole("parallel.world"), "parallel.strategy"
    kind = "DEEPSPEED" if stage(said) is not None else "FSDP" if sharded(said) else "MULTI_GPU" if world > 1 else "NO"
    yield Line(OWN, "compute_environment", "LOCAL_MACHINE")
    yield Line(OWN, "distributed_type", kind, strategy)
    yield Line(OWN, "num_machines", nodes)
    yield Line(OWN, "num_processes", world, "parallel.world")
    if kind == "FSDP":
        for name, value in {WRAPPING[0]: TRANSFORMER_WRAP, **fsdp(said)}.items():
            yield Line(OWN, f"fsdp_config.fsdp_{name}", value, strategy if name == "version" else "")
    elif kind == "DEEPSPEED":
        yield Line(OWN, "deepspeed_config.deepspeed_config_file", names.settings)
        if stage(said) == max(STAGES):
            init = "parallel.options.zero_init"
            yield Line(OWN, "deepspeed_config.zero3_init_flag", said.get(init, True), init)
        for name, part in zero(said).items():
            yield Line(SETTINGS, name, part)
    for name, size in mesh(said).items():
        yield Line(OWN, f"parallelism_config.parallelism_config_{name}", size, "parallel")


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The file, DeepSpeed's own where it runs, and the script."""
    yield names.main, yaml_file([line for line in lines if line.part == OWN], head)
    settings = nested((line.key, line.value) for line in lines if line.part == SETTINGS)
    if settings:
        yield names.settings, json_file(settings)
    yield names.script, trainer_script(lines, f"accelerate launch --config_file {names.main}", head)
