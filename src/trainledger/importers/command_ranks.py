"""How many ranks a command starts: from torchrun, srun and the like, from a batch file's directives, from variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.problems import InputError
from trainledger.facts.import_launch import NODES, PER_NODE, PROCESSES, TASKS, TASKS_PER_NODE
from trainledger.facts.limits import PLAN_FILE
from trainledger.importers.arithmetic import value_of
from trainledger.importers.command_line import Line
from trainledger.importers.files import read_text
from trainledger.importers.inputs import Input
from trainledger.importers.launch_counts import counted, option_name
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script
from trainledger.importers.shell_words import Word

EACH = (*PER_NODE, *TASKS_PER_NODE)
ALL = (*PROCESSES, *TASKS)
DIRECTED = (*EACH, "gres", "gpus")
STARTERS = ("torchrun", "torch.distributed.launch", "torch.distributed.run", "srun", "mpirun", "mpiexec", "deepspeed",
            "accelerate")  # fmt: skip
VARIABLES = (("GPUS_PER_NODE", "NPROC_PER_NODE", "GPU_PER_NODE", "NUM_GPUS", "SLURM_GPUS_ON_NODE"),
             ("NNODES", "NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"))  # fmt: skip
_DIRECTIVE = re.compile(r"^#\s*SBATCH\s+(.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks in all and where that stands; `open`: the text of a count that nothing gives a value."""

    count: int | None
    where: str = ""
    open: str = ""


def ranks_of(line: Line, given: Input) -> Ranks:
    """The ranks that a command of a script starts."""
    env = line.command.env
    flags = _flags(line.launcher)
    starts = {os.path.basename(word.text) for word in line.launcher} & set(STARTERS)
    if starts & {"torchrun", "torch.distributed.launch", "torch.distributed.run", "deepspeed"}:
        found = _product(_first(flags, EACH), _first(flags, NODES), env)
        if found.count is not None or _first(flags, EACH) is not None:
            return found
    directed = _directives(given)
    if starts & {"srun", "mpirun", "mpiexec", "accelerate"}:
        total = _first(flags, ALL) or (None if _first(flags, EACH) else _first(directed, ALL))
        if total is not None:
            return _product(total, None, env)
    per = _first(flags, EACH) or _first(directed, DIRECTED)
    if per is not None:
        return _product(per, _first(flags, NODES) or _first(directed, NODES), env)
    return _variables(env)


def ask(piece: Piece, ranks: Ranks | None) -> None:
    """Note that a run shards over ranks whose number no file says."""
    named = ranks.open if ranks is not None else ""
    found = f"{named} is known on the machine only" if named else "missing"
    fix = "Say it: --set parallel.world=8, or --env for a variable of the script."
    where = (ranks.where.rpartition(" ")[0] if ranks is not None else "") or piece.name
    piece.refuse("parallel.world", found, "no file says over how many ranks it shards", fix, where)


def _variables(env: Mapping[str, Word]) -> Ranks:
    """From WORLD_SIZE, or devices of a node times nodes."""
    world = env.get("WORLD_SIZE")
    if world is not None and _count(world, env) is not None:
        return Ranks(_count(world, env), f"{world.where} WORLD_SIZE")
    per, nodes = (next((env[name] for name in names if name in env), None) for names in VARIABLES)
    return _product(per, nodes, env) if per is not None else Ranks(None)


def _product(per: Word | None, nodes: Word | None, env: Mapping[str, Word]) -> Ranks:
    if per is None:
        return Ranks(None)
    counts = [(word, _count(word, env)) for word in (per, nodes) if word is not None]
    unknown = next((word for word, count in counts if count is None), None)
    if unknown is not None:
        return Ranks(None, unknown.where, unknown.text)
    total = 1
    for _, count in counts:
        total *= count or 1
    return Ranks(total, per.where)


def _count(word: Word, env: Mapping[str, Word]) -> int | None:
    """A count of at least 1: `8`, `gpu:8`, or arithmetic."""
    if (plain := counted(word.text)) is not None:
        return plain
    text = word.text.removeprefix("$((").removesuffix("))") if word.text.startswith("$((") else word.text
    found = value_of(text, env)
    return found if found is not None and found >= 1 else None


def _flags(words: tuple[Word, ...]) -> dict[str, Word]:
    """A launcher's arguments with the word of each value; of two the last counts."""
    found: dict[str, Word] = {}
    for at, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if equals and name.startswith("-"):
            found[option_name(name)] = Word(value, f"{word.where} {name}", word.known)
        elif name.startswith("-") and at + 1 < len(words):
            following = words[at + 1]
            found[option_name(name)] = Word(following.text, f"{word.where} {name}", following.known)
    return found


def _first(flags: Mapping[str, Word], names: tuple[str, ...]) -> Word | None:
    return next((flags[name] for name in names if name in flags), None)


def _directives(given: Input) -> dict[str, Word]:
    """The `#SBATCH` arguments of a batch file; none of standard input."""
    try:
        text = "" if given.name == "<stdin>" else read_text(given.name, PLAN_FILE)
    except InputError:
        return {}
    found: dict[str, Word] = {}
    for match in _DIRECTIVE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        for command in parse_script(f"sbatch {match.group(1)}", "", {}).commands:
            words = tuple(Word(word.text, f"{given.name}:{line}", word.known) for word in command.words)
            found |= _flags(words)
    return found
