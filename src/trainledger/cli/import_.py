"""`trainledger import`: the run's own files as a plan, with a comment for every key."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trainledger.cli.output import FORCE_HELP, OUTPUT_HELP
from trainledger.cli.sources import Env, Files, Sets, Versions, read_files, told


def import_(
    files: Files,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help=OUTPUT_HELP)] = "",
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print for programs: the plan, and where keys came from.")
    ] = False,
) -> None:
    """The plan that these files describe together, in YAML: each key with where it came from.

    What their formats are not known to have, and what moves memory and is not counted, stands at the top.
    """
    from trainledger.cli.output import check_output, write_output

    check_output(output, force)
    draft = told(read_files(files, sets, env, versions))
    if as_json:
        from trainledger.plan.schema import as_mapping
        from trainledger.show.document import draft_data, plain_value

        found = {"plan": plain_value(as_mapping(draft.plan)), "draft": draft_data(draft)}
        write_output(output, json.dumps(found, indent=1))
        return
    from trainledger.show.plan_text import plan_text

    write_output(output, plan_text(draft.plan, draft))
