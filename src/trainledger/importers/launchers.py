"""What starts a run: torchrun, accelerate launch, deepspeed, python, other programs; from a command's words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainledger.facts.import_launch import COMMANDS, COUNTING, FLAGS, MODULES, PYTHONS, TORCH_MODULES, WRAPPERS
from trainledger.importers.draft import Uncounted
from trainledger.importers.launch_counts import counted, visible
from trainledger.importers.piece import Given, Piece
from trainledger.importers.script import Command, Script, parse_script
from trainledger.importers.shell_words import Word

TORCHRUN, ACCELERATE, DEEPSPEED, PYTHON, TRL = "torchrun", "accelerate", "deepspeed", "python", "trl"


@dataclass(frozen=True, slots=True)
class Launch:
    """One started run. `launcher`: torchrun, accelerate, deepspeed, python or a program of its own; `options`: the
    launcher's, by name with underscores; `program`: the script's or module's name without path and ending, or the
    command of a program (`trl sft`); `arguments`: the program's words; `env`: variables set for it."""

    launcher: str
    options: Mapping[str, Given]
    program: str
    arguments: tuple[Word, ...]
    env: Mapping[str, Word]
    where: str
    unknown: tuple[str, ...] = field(default=())  # options whose values the script leaves open
    within: str = ""  # the program that is told to start it, behind a `--` of its own


def launches(script: Script) -> tuple[Launch, ...]:
    """Every run that a script starts, in order; commands of other programs are left out."""
    found = (launch_of(command, script.name) for command in script.commands)
    return tuple(one for one in found if one is not None)


def launch_of(command: Command, name: str = "") -> Launch | None:
    """The run that a command starts; None where it starts none."""
    words = list(command.words)
    while words and _base(words[0]) in WRAPPERS:
        inner = _quoted(words, command, name)
        if inner is not None:
            return inner
        at = next((at for at, word in enumerate(words) if at and _starts(word)), 0)
        if not at:
            return None
        words = words[at:]
    told = behind(words)
    if len(told) < len(words):
        inner = launch_of(Command(told, command.env), name)
        return inner and replace(inner, within=_teller(words[: -len(told)]))
    if not words or not _starts(words[0]):
        return None
    first = _base(words[0])
    if first == ACCELERATE:
        rest = words[1:]
        return _split(ACCELERATE, rest[1:], command) if rest and rest[0].text == "launch" else None
    if first in PYTHONS:
        return _python(words[1:], command)
    if first in COMMANDS:
        return _own(first, words, command)
    return _split(first, words[1:], command)


def behind(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words of the run that another program is told to start: `python submit.py --nodes 2 -- torchrun train.py`."""
    for at, word in enumerate(words[:-1]):
        if at and word.text == "--" and _starts(words[at + 1]):
            return tuple(words[at + 1 :])
    return tuple(words)


def _teller(words: Sequence[Word]) -> str:
    """The program at the start of a command, a script's name where Python runs it."""
    return next((_base(word) for word in words if word.text.endswith(".py")), _base(words[0]))


def _base(word: Word) -> str:
    return os.path.basename(word.text)


def _starts(word: Word) -> bool:
    base = _base(word)
    return base in (TORCHRUN, ACCELERATE, DEEPSPEED, *PYTHONS, *COMMANDS)


def _quoted(words: list[Word], command: Command, name: str) -> Launch | None:
    """The run in `bash -c "..."`."""
    for at, word in enumerate(words[:-1]):
        if word.text in ("-c", "-lc") and words[at - 1].text.endswith("sh"):
            inner = parse_script(words[at + 1].text, name, {key: one.text for key, one in command.env.items()})
            return next(iter(launches(inner)), None)
    return None


def _python(words: list[Word], command: Command) -> Launch | None:
    for at, word in enumerate(words):
        if word.text == "-m" and at + 1 < len(words):
            module = words[at + 1].text
            if module.startswith(TORCH_MODULES):
                return _split(TORCHRUN, words[at + 1 + 1 :], command)
            if module == "accelerate.commands.launch":
                return _split(ACCELERATE, words[at + 1 + 1 :], command)
            break
        if not word.text.startswith("-"):
            break
    return _split(PYTHON, words, command)


def _own(program: str, words: list[Word], command: Command) -> Launch:
    """`trl sft ...`, `swift rlhf ...`: the command is part of the program's name."""
    verb = words[1].text if len(words) > 1 and not words[1].text.startswith("-") else ""
    rest = words[1 + bool(verb) :]
    return Launch(program, {}, f"{program} {verb}".strip(), tuple(rest), command.env, words[0].where)


def _split(launcher: str, words: list[Word], command: Command) -> Launch | None:
    """The launcher's options, up to the program; what follows is the program's."""
    options: dict[str, Given] = {}
    unknown: list[str] = []
    at, module = 0, False
    while at < len(words) and words[at].text.startswith("-"):
        name, equals, value = words[at].text.lstrip("-").partition("=")
        key = name.replace("-", "_")
        held = words[at]
        at += 1
        if key in MODULES:
            module = True
            continue
        if not equals and key not in FLAGS.get(launcher, ()) and at < len(words):
            held = words[at]
            value = held.text
            at += 1
        if not held.known:
            unknown.append(key)
        options[key] = Given(value if equals or held.text == value else True, f"{held.where} --{name}")
    if at >= len(words):
        return None
    program = words[at].text
    stem = program if module else os.path.basename(program).removesuffix(".py").removesuffix(".sh")
    where = words[at].where
    return Launch(launcher, options, stem, tuple(words[at + 1 :]), command.env, where, tuple(unknown))


def arguments_of(words: tuple[Word, ...]) -> tuple[dict[str, Given], tuple[Word, ...]]:
    """Arguments of a program by name (dashes within become underscores), and its other words. A name without a value is
    true, with several values a list; of a name given twice the last counts."""
    named: dict[str, Given] = {}
    loose: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _option(word.text):
            loose.append(word)
            continue
        name, equals, value = word.text.lstrip("-").partition("=")
        values = [value] if equals else []
        while not equals and at < len(words) and not _option(words[at].text):
            values.append(words[at].text)
            at += 1
        key = name.replace("-", "_")
        held: object = True if not values else values[0] if len(values) == 1 else values
        named[key] = Given(held, f"{word.where} --{name}")
    return named, tuple(loose)


def _option(text: str) -> bool:
    """Whether a word is an option's name: `-1` and `-1e-4` are numbers."""
    return text.startswith("--") or (text.startswith("-") and text[1:2].isalpha())


def ranks_of(launch: Launch, piece: Piece) -> None:
    """The number of ranks into the piece: `parallel.world`, or the fact `launch.open` where it depends on what only the
    machine knows (its value: the word that the script leaves open)."""
    if launch.launcher == TORCHRUN:
        _product(launch, piece, "nproc_per_node", "nnodes")
    elif launch.launcher == DEEPSPEED:
        _deepspeed(launch, piece)
    elif launch.launcher in (ACCELERATE, TRL):
        named = arguments_of(launch.arguments)[0] if launch.launcher == TRL else launch.options
        if not {"num_processes", "config_file", "accelerate_config"} & set(named):
            _visible(launch, piece)
    elif launch.launcher == PYTHON and (visible(launch.env) or 1) > 1:
        why = "the ledger may be too low on the first device: the Trainer runs DataParallel over all that it sees"
        piece.uncounted.append(Uncounted("python", launch.where, why))


def _product(launch: Launch, piece: Piece, inner: str, outer: str) -> None:
    """Ranks of one node times nodes; one where nothing is said."""
    counts = {name: _count(launch, name) for name in (inner, outer)}
    where = next((launch.options[name].where for name in counts if name in launch.options), launch.where)
    for name, count in counts.items():
        if count is None:
            piece.facts["launch.open"] = Given(str(launch.options[name].value), launch.options[name].where)
            return
    per_node, nodes = counts[inner] or 1, counts[outer] or 1
    piece.give("parallel.world", per_node * nodes, where)
    piece.facts["launch.per_node"] = Given(per_node, where)


def _count(launch: Launch, name: str) -> int | None:
    """A count among the options, 1 where it is left out; None where it is open. An elastic range counts as its end."""
    if name not in launch.options:
        return 1
    text = str(launch.options[name].value)
    return visible(launch.env) if text in ("gpu", "auto") else counted(text)


def _visible(launch: Launch, piece: Piece) -> None:
    count = visible(launch.env)
    if count is None:
        piece.facts["launch.open"] = Given("", launch.where)
    else:
        where = next(launch.env[name].where for name in COUNTING if name in launch.env)
        piece.give("parallel.world", count, where)


def _deepspeed(launch: Launch, piece: Piece) -> None:
    """`--num_gpus` times `--num_nodes`, or the devices that `--include` names (`host:0,1@other:0,1`)."""
    include = launch.options.get("include") or launch.options.get("i")
    hosts = str(include.value).split("@") if include else []
    devices = [len([one for one in host.partition(":")[-1].split(",") if one]) for host in hosts]
    if include and all(devices):
        piece.give("parallel.world", sum(devices), include.where)
        piece.facts["launch.per_node"] = Given(max(devices), include.where)
    elif "num_gpus" in launch.options:
        _product(launch, piece, "num_gpus", "num_nodes")
    else:
        _visible(launch, piece)
