"""What front ends of the Trainer share: its arguments under their own keys, the launch script that starts them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from trainledger.importers.emit import ARGS, ENV, OWN, Line, Names, Said
from trainledger.importers.emit_hf import trainer_lines, variables
from trainledger.importers.emit_model import hub_model
from trainledger.importers.emit_sharding import arguments as sharding
from trainledger.importers.emit_text import script, yaml_file

Own = Callable[[Line], Iterable[tuple[str, object]]]


def front_lines(
    said: Said, names: Names, own: Own, optimizers: tuple[str, ...]
) -> tuple[tuple[Line, ...], Mapping[str, object] | None]:
    """A plan's lines under a front end's keys: `own` gives for one of the Trainer's arguments the keys that say it.
    `optimizers`: those that the front end makes itself."""
    name, model = hub_model(said)
    given = (
        Line(ARGS, "model_name_or_path", name or f"./{names.model}", "model"),
        *trainer_lines(said, optimizers),
        *sharding(said),
    )
    lines = (Line(OWN, key, value, line.path) for line in given for key, value in own(line))
    return (*variables(said), *lines), model


def front_files(
    lines: tuple[Line, ...], names: Names, head: tuple[str, ...], command: str
) -> Iterator[tuple[str, str]]:
    """The YAML file, and the script that starts it."""
    yield names.main, yaml_file([line for line in lines if line.part == OWN], head)
    yield names.script, script([line for line in lines if line.part == ENV], command, head)
