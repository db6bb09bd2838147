"""`trainledger advise`: what to change of a plan, with bytes and price."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.sources import Env, Files, OwnDevice, Sets, Versions, on_device, placed, read_files


def advise(
    files: Files,
    top: Annotated[int, typer.Option("--top", min=0, help="How many of the best are shown in full.")] = 3,
    combine: Annotated[int, typer.Option("--combine", min=1, max=3, help="Up to how many changes together.")] = 3,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """Single changes and combinations, each estimated anew: bytes saved at this peak, the new peak, verdict and price.

    Where a node's memory, the disk or another place does not fit, the bytes are those saved there. The lines to change
    are those of your own files, in their format.
    """
    check_units(units)
    from trainledger.answer.advise import advise as advice_of
    from trainledger.cli.progress import progress
    from trainledger.importers.changed_lines import changed_lines
    from trainledger.show.advise import document, sections

    draft = read_files(files, on_device(sets, device), env, versions)
    with placed(draft):
        found = advice_of(draft.data, progress("advising"), combine)
    if as_json:
        print(json.dumps(document(found, lambda option: changed_lines(option.taken.changes, draft)), indent=1))
        return
    from trainledger.show.estimate import View
    from trainledger.show.table import screen_of, write

    write(sections(found, lambda option: changed_lines(option.taken.changes, draft), View(units), top), screen_of())
