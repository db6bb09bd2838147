"""A shell script or command line that starts a run with Hugging Face's arguments: accelerate launch, torchrun,
deepspeed, python, or TRL's own command."""

from __future__ import annotations

import re

from trainledger.base.problems import nearest
from trainledger.facts.import_accelerate import ACCELERATE_KEYS
from trainledger.facts.import_hf_trl import (
    ACCELERATE_PROFILES,
    RLOO,
    SIGNS,
    TASK_SIGNS,
    TRAINER_SCRIPTS,
    TRL_COMMANDS,
    TRL_UNREAD,
)
from trainledger.facts.import_launch import OTHER_MODULES, OTHERS
from trainledger.facts.import_rows import CERTAIN, LIKELY, PERHAPS, Means
from trainledger.importers import accelerate_yaml
from trainledger.importers.draft import Ignored, Uncounted, Unknown
from trainledger.importers.environment import environment_keys
from trainledger.importers.formats import Context
from trainledger.importers.hf_roles import SORT
from trainledger.importers.hf_run import ROWS, TASK, TRL, run_piece
from trainledger.importers.inputs import Input
from trainledger.importers.launchers import ACCELERATE, Launch, arguments_of, launches, ranks_of
from trainledger.importers.piece import Given, Piece, Rank

_OPEN = re.compile(r"\$[A-Za-z_{(]|`")
_STRONG = ("per_device_train_batch_size", "model_name_or_path", "deepspeed", "num_train_epochs", "output_dir", "config")
_FILES = (".yaml", ".yml", ".json")
_DEEPSPEED = "zero offload_optimizer_ offload_param_ zero3_ deepspeed_ gradient_clipping".split()
_KINDS = {
    "use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "multi_gpu": "MULTI_GPU", "use_megatron_lm": "MEGATRON_LM",
}  # fmt: skip


def identify(given: Input) -> float:
    """Certain of TRL's own command; likely where a run has the Trainer's arguments."""
    return max((_sure(launch) for launch in _runs(given)), default=0)


def _runs(given: Input) -> tuple[Launch, ...]:
    return launches(given.script) if given.script is not None else ()


def _sure(launch: Launch) -> float:
    if launch.launcher == "trl":
        return CERTAIN
    root, dot, _ = launch.program.partition(".")
    if launch.launcher in OTHERS or (root in OTHER_MODULES and (dot or root.startswith("pretrain_"))):
        return 0
    named, _ = arguments_of(launch.arguments)
    return LIKELY if any(name in named for name in _STRONG) else PERHAPS


def extract(given: Input, context: Context) -> Piece:
    """The run that has most of the Trainer's arguments; others of the script are listed as ignored."""
    runs = [launch for launch in _runs(given) if _sure(launch)]
    chosen = max(runs, key=lambda launch: len(set(arguments_of(launch.arguments)[0]) & set(ROWS)))
    piece = Piece(f"{chosen.launcher} command", given.name, rank=Rank.COMMAND)
    for other in runs:
        if other is not chosen and other.arguments != chosen.arguments:
            piece.ignored.append(Ignored(f"{other.where} {other.program}", "one run is estimated at a time"))
    for name, word in given.script.doubts.items() if given.script else ():
        why = f"a branch changes it: taken as {word.text!r}; --env {name}=... says which"
        piece.ignored.append(Ignored(f"{word.where} {name}", why))
    if chosen.within:
        why = "it starts the run: what it does of its own words is not known"
        piece.ignored.append(Ignored(f"{chosen.where} {chosen.within}", why))
    environment_keys(piece, chosen.env)
    ranks_of(chosen, piece)
    args, loose = arguments_of(chosen.arguments)
    args = dict(_denied(name, one) for name, one in args.items())
    _open(piece, args)
    if chosen.launcher == ACCELERATE:
        _accelerate(piece, dict(chosen.options))
    elif chosen.launcher == "trl":
        _accelerate(piece, _taken(args))
    for path in [word for word in loose if word.text.endswith(_FILES)]:
        piece.files.append((path.text, path.where))
    for name in ("config", "deepspeed_config"):
        if name in args and isinstance(args[name].value, str):
            piece.files.append((str(args[name].value), args.pop(name).where))
    run_piece(piece, {**args, **_trainer(chosen, args)}, context)
    if (name := _name(chosen)) in TRL_UNREAD or (chosen.launcher == "trl" and name not in TRL_COMMANDS):
        fix = "Write a plan: its roles say which models act beside the policy."
        allowed = f"of TRL's trainers those of {', '.join(sorted(set(TRL_COMMANDS.values())))} can be read"
        piece.refuse("task", f"found {name!r}", allowed, fix, chosen.where)
    return piece


def _name(launch: Launch) -> str:
    """What is run, without its folder or TRL's own command."""
    return launch.program.removeprefix("trl ").rpartition(".")[-1] or launch.program


def _trainer(launch: Launch, args: dict[str, Given]) -> dict[str, Given]:
    """Which trainer runs, and what it trains: by the script's name, else by arguments that only TRL has."""
    name = _name(launch)
    sign = next((one for one in args if one in SIGNS), "")
    task = next((one for one in TASK_SIGNS if one in args), "")
    if launch.launcher == "trl" or name in TRL_COMMANDS:
        found = {TRL: Given(True, launch.where)}
        if name in TRL_COMMANDS:
            found[TASK] = Given(TRL_COMMANDS[name], launch.where)
        if name in RLOO:
            found[SORT] = Given(True, launch.where)
        return found
    if name in TRAINER_SCRIPTS:
        return {TASK: Given(TRAINER_SCRIPTS[name], launch.where)}
    return (
        {TRL: Given(True, args[sign].where), TASK: Given(TASK_SIGNS.get(task, "sft"), args[sign].where)} if sign else {}
    )


def _denied(name: str, one: Given) -> tuple[str, Given]:
    """`--no_name`, as the Trainer's parser has it for what is on by default."""
    plain = name.removeprefix("no_")
    return (plain, Given(False, one.where)) if name != plain and name not in ROWS and plain in ROWS else (name, one)


def _open(piece: Piece, args: dict[str, Given]) -> None:
    """Values that the script leaves to the machine: a problem where they matter, nothing where they do not."""
    for name, one in list(args.items()):
        values = one.value if isinstance(one.value, list) else [one.value]
        if not any(isinstance(value, str) and _OPEN.search(value) for value in values):
            continue
        row = ROWS.get(name)
        if row is not None and row.means is not Means.NOTHING:
            found = f"found {' '.join(str(value) for value in values)!r}"
            fix = "Set it in the script, or give it with --env."
            piece.refuse(name, found, "the script does not say what this is", fix, one.where)
        if row is None or row.means is not Means.NOTHING:
            args.pop(name)


def _taken(args: dict[str, Given]) -> dict[str, Given]:
    """What TRL's command hands on to accelerate: taken out of the arguments."""
    own = {row.name.rpartition(".")[-1] for row in ACCELERATE_KEYS} - set(ROWS)
    taken = {name: args.pop(name) for name in list(args) if name in own}
    profile = args.pop("accelerate_config", None)
    if profile is None:
        return taken
    if str(profile.value) in ACCELERATE_PROFILES:
        known = ACCELERATE_PROFILES[str(profile.value)]
        return {**{name: Given(value, profile.where) for name, value in known.items()}, **taken}
    return {**taken, "config_file": profile}


def _accelerate(piece: Piece, options: dict[str, Given]) -> None:
    """Options of `accelerate launch`, nested as its file has them."""
    nested: dict[str, Given] = {}
    sections: dict[str, dict[str, Given]] = {"fsdp_config": {}, "deepspeed_config": {}, "parallelism_config": {}}
    for name, one in options.items():
        section = (
            "fsdp_config" if name.startswith("fsdp_") and name != "fsdp_config"
            else "parallelism_config" if name.startswith("parallelism_config_")
            else "deepspeed_config" if name.startswith(tuple(_DEEPSPEED)) and name != "deepspeed_config"
            else ""
        )  # fmt: skip
        _known(piece, f"{section}.{name}" if section else name, one)
        if section:
            sections[section][name] = one
        elif name in _KINDS:
            nested["distributed_type"] = Given(_KINDS[name], one.where)
        elif name == "config_file":
            piece.files.append((str(one.value), one.where))
        else:
            nested[name] = one
    places = {f"{section}.{name}": one.where for section, held in sections.items() for name, one in held.items()}
    for section, held in sections.items():
        if held:
            where = next(iter(held.values())).where
            nested[section] = Given({name: one.value for name, one in held.items()}, where)
    if nested:
        accelerate_yaml.read_config(piece, nested, lambda name: places.get(name, ""))


def _known(piece: Piece, name: str, one: Given) -> None:
    rows = {row.name: row for row in ACCELERATE_KEYS}
    row = rows.get(name)
    if row is None and name not in ("distributed_type", "config_file", *_KINDS, "fsdp_config", "deepspeed_config"):
        piece.unknown.append(Unknown(name, one.where, nearest(name, rows)))
    elif row is not None and row.means is Means.UNCOUNTED and str(one.value).lower() not in ("false", "0", "no"):
        piece.uncounted.append(Uncounted(name, one.where, row.direction.value))
