"""`trainledger explain`: one account of the ledger, each line with its arithmetic and its source."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.cli.estimate import UNITS_HELP
from trainledger.cli.sources import FILES_HELP, Env, OwnDevice, Sets, Versions, on_device, placed, read_files, told

ACCOUNT_HELP = "An account (weights, activations, ...) or a part of a line's name."


def explain(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help=FILES_HELP)] = None,
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help=ACCOUNT_HELP)] = "",
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    moment: Annotated[str, typer.Option("--moment", help="The lines live at this moment, not at the peak.")] = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """Each line of an account: dims with values, dtype, rounding, copies, shard, source. Enough to check by hand."""
    if not files:
        fix = f"Name one after it: trainledger explain {account or 'FILE'} weights."
        raise InputError([Problem("ACCOUNT", "missing", "files and then an account of the ledger are needed", fix)])
    from trainledger.answer.estimate import estimate
    from trainledger.answer.formula import explain as explanation_of
    from trainledger.cli.estimate import check_units
    from trainledger.show import explain as shown

    check_units(units)
    draft = told(read_files(files, on_device(sets, device), env, versions))
    with placed(draft):
        found = explanation_of(estimate(draft.plan), account, moment)
    if as_json:
        print(json.dumps(shown.document(found, account), indent=1))
        return
    from trainledger.show.estimate import View
    from trainledger.show.table import screen_of, write

    write(shown.sections(found, account, View(units)), screen_of())
