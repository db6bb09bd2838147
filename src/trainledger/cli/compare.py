"""`trainledger compare`: plans side by side, or one plan on several devices."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.sources import Env, Sets, Versions, read_files

JOIN = "+"
RUNS_HELP = f"A plan or a run's file each; files of one run are joined by {JOIN}: train.yaml{JOIN}zero3.json."
DEVICES_HELP = "Compare one plan on these devices: a100-80gb,h100-80gb."


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="FILE...", help=RUNS_HELP)],
    devices: Annotated[str, typer.Option("--devices", metavar="A,B", help=DEVICES_HELP)] = "",
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """Side by side by account, moment, place and key, and what each difference of the plans moved.

    Each difference is made on top of those before it, in the order of the plan's format; what they moved adds up.
    """
    check_units(units)
    from trainledger.answer.compare import compare as compared
    from trainledger.cli.progress import progress
    from trainledger.show.compare import document, sections

    plans = [(run, read_files(parts(run), sets, env, versions).data) for run in runs]
    found = compared(_devices(plans, devices) if devices else plans, progress("comparing"))
    if as_json:
        print(json.dumps(document(found), indent=1))
        return
    from trainledger.show.estimate import View
    from trainledger.show.table import screen_of, write

    write(sections(found, View(units)), screen_of())


def parts(run: str) -> list[str]:
    """The files of one run: joined by +, unless a file has that name. Raises InputError beside a + without a file."""
    files = [run] if os.path.exists(run) else run.split(JOIN)
    if not all(files):
        raise InputError([Problem("FILE", f"found {run!r}", "a file on each side of a + is needed")])
    return files


def _devices(plans: list[tuple[str, Any]], devices: str) -> Any:
    from trainledger.answer.compare import on_devices

    if len(plans) > 1:
        raise InputError([Problem("--devices", f"given with {len(plans)} plans", "one plan is compared on devices")])
    found = on_devices(plans[0][1], [name for name in devices.split(",") if name.strip()])
    if len(found) < len(("first", "second")):
        allowed = "two devices or more are compared"
        raise InputError([Problem("--devices", f"found {devices!r}", allowed, "Name another.")])
    return found
