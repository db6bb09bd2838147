"""What every verb that takes files shares: their help, `--set`, `--env`, `--framework-version`, and reading them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.names import PACKAGES

if TYPE_CHECKING:
    from trainledger.importers.draft import Draft

FILES_HELP = (
    "A plan, or the run's own files together (YAML, JSON, TOML, a script, a model's folder); - is standard input."
)
SET_HELP = "Change a key of the plan: batch.micro_batch=2. May be given several times."
ENV_HELP = "A variable that a script may read. Nothing is taken from this machine's own."
DEVICE_HELP = "The device in place of the plan's: a known name, or a file that describes one of your own."
VERSION_HELP = "The release whose defaults count: axolotl==0.9.2. Left out, the newest known."

Files = Annotated[list[str], typer.Argument(metavar="FILE", help=FILES_HELP)]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)]
Env = Annotated[list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help=ENV_HELP)]
Versions = Annotated[list[str] | None, typer.Option("--framework-version", metavar="NAME==X.Y", help=VERSION_HELP)]
OwnDevice = Annotated[str, typer.Option("--device", metavar="NAME|FILE", help=DEVICE_HELP)]


def on_device(sets: Sequence[str] | None, device: str) -> list[str]:
    """Changes to the plan with the device that was given, before those that were. Raises InputError for a file."""
    if not device:
        return list(sets or ())
    from trainledger.importers.beside import device_set

    return [device_set(device), *(sets or ())]


def read_files(
    files: Sequence[str], sets: Sequence[str] | None, env: Sequence[str] | None, versions: Sequence[str] | None
) -> Draft:
    """The draft that these files describe together. Raises InputError with every problem."""
    from trainledger.importers.outside import read_any

    problems: list[Problem] = []
    variables = pairs("--env", "=", env, problems)
    releases = pairs("--framework-version", "==", versions, problems)
    problems += [problem for name in releases for problem in _unknown(name)]
    if problems:
        raise InputError(problems)
    return read_any(files, sets or (), variables, releases)


def _unknown(package: str) -> Iterator[Problem]:
    """The problem of a name whose releases no table has."""
    if package not in PACKAGES.names:
        near = nearest(package, PACKAGES.names)
        fix = f"Did you mean {near}?" if near else f"Known are {', '.join(PACKAGES.names)}."
        yield Problem("--framework-version", f"found {package!r}", "the name of a known package is needed", fix)


def told(draft: Draft) -> Draft:
    """The draft, with its files' unknown keys named on standard error: for verbs that show no verdict beside them."""
    from trainledger.show.doubts import unknown

    for one in draft.unknown:
        print(unknown(one), file=sys.stderr)
    return draft


@contextmanager
def placed(draft: Draft) -> Iterator[None]:
    """Give the problems that are found of the draft's plan the places of their keys: the nearest key that was given at
    or above each. What is no key of a file keeps none."""
    try:
        yield
    except InputError as error:
        given = {one.path: one.where for one in draft.used}
        raise type(error)(replace(one, where=one.where or _place(one.path, given)) for one in error.problems) from None


def _place(path: str, given: Mapping[str, str]) -> str:
    while path and path not in given:
        path = path.rpartition(".")[0]
    return given.get(path, "")


def pairs(option: str, mark: str, given: Sequence[str] | None, problems: list[Problem]) -> dict[str, str]:
    """NAME and VALUE of texts such as NAME=VALUE; every text that is none is noted."""
    found = dict[str, str]()
    for text in given or ():
        name, middle, value = text.partition(mark)
        if middle and name.strip():
            found[name.strip()] = value.strip() if mark == "==" else value
        else:
            problems.append(Problem(option, f"found {text!r}", f"NAME{mark}VALUE is needed"))
    return found
