"""`trainledger checkpoint`: what a checkpoint takes on disk, and what resuming elsewhere needs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.sources import Env, Files, OwnDevice, Sets, Versions, on_device, read_files


def checkpoint(
    files: Files,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """A checkpoint of a plan: its files, who writes them, how many are kept, and what a resume needs.

    `--set save.format=fsdp-full` asks for another format than the framework's own.
    """
    check_units(units)
    draft = read_files(files, on_device(sets, device), env, versions)
    from trainledger.answer.disk import beside
    from trainledger.answer.estimate import estimate

    found = beside(estimate(draft.plan)).checkpoint
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
        return
    from trainledger.show.estimate import View
    from trainledger.show.places import checkpoint_sections
    from trainledger.show.table import screen_of, write

    write(tuple(checkpoint_sections(found, View(units).size)), screen_of())
