"""`trainledger explain`: one account of the ledger, each line with its arithmetic and its source."""

from __future__ import annotations

import json
from typing import Annotated

import typer

PLAN_HELP = "A plan in YAML or JSON; - reads standard input."
ACCOUNT_HELP = "An account (weights, activations, ...) or a part of a line's name."
SET_HELP = "Change a key: batch.micro_batch=2. May be given several times."


def explain(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help=PLAN_HELP)],
    account: Annotated[str, typer.Argument(metavar="ACCOUNT", help=ACCOUNT_HELP)],
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)] = None,
    moment: Annotated[str, typer.Option("--moment", help="The lines live at this moment, not at the peak.")] = "",
    units: Annotated[str, typer.Option("--units", help="The unit of sizes: GiB, GB, MiB, B and so on.")] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """Each line of an account: dims with values, dtype, rounding, copies, shard, source. Enough to check by hand."""
    from trainledger.answer.estimate import estimate
    from trainledger.answer.formula import explain as explanation_of
    from trainledger.cli.estimate import check_units
    from trainledger.importers.plan_file import read_draft
    from trainledger.show import explain as shown

    check_units(units)
    found = explanation_of(estimate(read_draft(plan, sets or ()).plan), account, moment)
    if as_json:
        print(json.dumps(shown.document(found, account), indent=1))
        return
    from trainledger.show.estimate import View
    from trainledger.show.table import screen_of, write

    write(shown.sections(found, account, View(units)), screen_of())
