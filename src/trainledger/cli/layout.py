"""`trainledger layout`: where one rank's parameters lie in flat buffers, and which of their elements it owns."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from trainledger.cli.output import FORCE_HELP, OUTPUT_HELP
from trainledger.cli.sources import Env, Files, Sets, Versions, placed, read_files, told

PARAM_HELP = "Only this parameter, or those in whose name this occurs."


def layout(
    files: Files,
    rank: Annotated[int, typer.Option("--rank", help="The rank's number.")] = 0,
    param: Annotated[str | None, typer.Option("--param", metavar="NAME", help=PARAM_HELP)] = None,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help=OUTPUT_HELP)] = "",
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: ranges in elements.")] = False,
) -> None:
    """For each parameter: its buffer, its bucket, and the elements that the rank has of it.

    In three ranges: in the buffer (world), in the rank's shard of it (local), in the parameter itself.
    """
    from trainledger.cli.output import check_output, write_output

    check_output(output, force)
    from trainledger.answer.layout import layout as layout_of

    draft = told(read_files(files, sets, env, versions))
    with placed(draft):
        found = layout_of(draft.plan, rank)
    found = found if param is None else found.only(param)
    if as_json:
        write_output(output, json.dumps(found.to_dict(), indent=1))
        return
    from trainledger.show.layout import sections
    from trainledger.show.table import plain, screen_of, write

    if output:
        write_output(output, "\n\n".join(plain(section) for section in sections(found) if section.text or section.rows))
    else:
        write(sections(found), screen_of())
