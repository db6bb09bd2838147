"""`trainledger review`: one page of model states, for an architecture review."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.output import FORCE_HELP, OUTPUT_HELP, check_output, write_output
from trainledger.cli.sources import Env, Files, OwnDevice, Sets, Versions, on_device, placed, read_files

if TYPE_CHECKING:
    from trainledger.importers.draft import Draft


def review(
    files: Files,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Print a page of HTML.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV: sizes in bytes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    output: Annotated[str, typer.Option("-o", "--output", help=OUTPUT_HELP)] = "",
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
) -> None:
    """The state ledger of a plan on one page: parameters and how shared ones count, each kind of state with its dtype,
    how it is divided and where it lies, what the rank holds between steps and for a while, and what is not in it.
    """
    check_units(units)
    asked = [name for name, given in (("markdown", markdown), ("html", html), ("csv", csv), ("json", as_json)) if given]
    if len(asked) > 1:
        raise InputError([Problem("--" + asked[1], f"given beside --{asked[0]}", "one form at a time")])
    check_output(output, force)
    draft = read_files(files, on_device(sets, device), env, versions)
    with placed(draft):
        text = _text(draft, asked[0] if asked else "text", units)
    write_output(output, text)


def _text(draft: Draft, form: str, units: str) -> str:
    from trainledger.answer.estimate import estimate
    from trainledger.answer.review import review as review_of
    from trainledger.show import review as shown
    from trainledger.show.estimate import View
    from trainledger.show.table import plain

    found, size = review_of(estimate(draft.plan)), View(units).size
    if form == "json":
        return json.dumps(found.to_dict(), indent=1)
    if form == "csv":
        return shown.table(found)
    if form == "html":
        return shown.page(found, size)
    if form == "markdown":
        return shown.markdown(found, size)
    return "\n\n".join(plain(one) for one in shown.sections(found, size) if one.text or one.rows)
