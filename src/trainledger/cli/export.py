"""`trainledger export`: a plan, or the run's own files, as the files of a framework."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.cli.output import FORCE_HELP, check_outputs, write_outputs
from trainledger.cli.sources import Env, Files, Sets, Versions, read_files, told
from trainledger.importers.formats import EMITTERS

TO_HELP = f"What to write: {', '.join(EMITTERS)}."
OUTPUT_HELP = "Write the format's own file here, and what belongs to it beside it; left out, print all of it."


def _formats() -> list[str]:
    return list(EMITTERS)


def export(
    files: Files,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=TO_HELP, autocompletion=_formats)],
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help=OUTPUT_HELP)] = "",
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: files, and keys not said.")] = False,
) -> None:
    """The plan in a framework's own format, with the script that starts it.

    What is written is read back: keys of the plan that the files do not say are named on standard error, each with the
    option that says it. Where those are keys without which it would be another run, nothing is written.
    """
    from trainledger.importers.export import export as exported

    if output and not os.path.basename(output):
        raise InputError([Problem("-o", f"found {output!r}", "a file's name is needed")])
    draft = told(read_files(files, sets, env, versions))
    found = exported(draft, to, os.path.basename(output))
    if output:
        check_outputs(os.path.dirname(output), [name for name, _ in found.files], force)
        write_outputs(os.path.dirname(output), found.files)
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
    elif not output:
        alone = len(found.files) == 1
        print("\n".join(text if alone else f"# file: {name}\n{text}" for name, text in found.files), end="")
    for key in draft.uncounted:
        print(f"not carried: {key.where} moves memory and is no key of a plan", file=sys.stderr)
    for one in found.unsaid:
        value = "left out" if one.value is None else one.shown
        print(f"not said: {one.path} {value}: {one.why}; {one.change}", file=sys.stderr)
