"""`trainledger trace`: the ledger of the code itself, run on tensors without storage."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.gate import Gated, check_gate, exit_code
from trainledger.cli.sources import Env, Sets, Versions, placed, read_files
from trainledger.facts.trace import PATIENCE

if TYPE_CHECKING:
    from trainledger.evidence.trace.job import Tracer
    from trainledger.importers.draft import Draft

COMMAND = Gated  # the class of the command, for the root

PLAN_HELP = "A plan, or the run's own files together; - is standard input. Left out with --script."
SCRIPT_HELP = "Trace your own function instead: it returns model, batch, optimizer, or a function that makes one step."
DEVICE_HELP = "With --script: the device to compare with, such as h100-80gb."
GATE_HELP = "Exit with 1 when it does not fit; --gate=tight: when it may not, too."
TIMEOUT_HELP = "Seconds after which the trace is stopped."


def trace(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE...]", help=PLAN_HELP)] = None,
    script: Annotated[str, typer.Option("--script", metavar="FILE:FUNCTION", help=SCRIPT_HELP)] = "",
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: Annotated[str, typer.Option("--device", help=DEVICE_HELP)] = "",
    lines: Annotated[bool, typer.Option("--lines", help="Unfold every account to its lines.")] = False,
    moment: Annotated[str, typer.Option("--moment", help="Show this moment's lines, not the peak's.")] = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    gate: Annotated[str, typer.Option("--gate", metavar="[=tight]", help=GATE_HELP)] = "",
    timeout: Annotated[float, typer.Option("--timeout", min=1, help=TIMEOUT_HELP)] = PATIENCE.seconds,
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """The ledger of the plan's real code, built by Transformers and run on tensors without storage; no GPU is needed.

    The same tables as `estimate`. With --script: of your own code.
    """
    check_units(units)
    check_gate(gate)
    of_plans = {"--set": bool(sets), "--env": bool(env), "--framework-version": bool(versions)}
    _check(bool(files), script, of_plans, device)
    if script:
        code = _script(script, device, (units, lines, moment, as_json), (gate, tracer(timeout)))
    else:
        draft = read_files(files or (), sets, env, versions)
        with placed(draft):
            code = _plan(draft, (units, lines, moment, as_json), (gate, tracer(timeout)))
    raise typer.Exit(code)


def _check(plan: bool, script: str, of_plans: dict[str, bool], device: str) -> None:
    problems = []
    if not plan and not script:
        problems.append(Problem("PLAN", "missing", "a plan, or --script FILE:function, is needed"))
    if plan and script:
        problems.append(Problem("--script", "given with a plan", "one of the two is traced", "Leave one out."))
    path, _, function = script.rpartition(":")
    if script and not (function and os.path.isfile(path)):
        allowed = "FILE:function, of a Python file that is there, is needed"
        problems.append(Problem("--script", f"found {script!r}", allowed))
    if script:
        problems += [Problem(name, "given with --script", "it changes a plan") for name, on in of_plans.items() if on]
    elif device:
        fix = f"Write --set device={device}."
        problems.append(Problem("--device", "given with a plan", "a plan names its own device", fix))
    if problems:
        raise InputError(problems)


def tracer(timeout: float = PATIENCE.seconds) -> Tracer:
    """Runs a job in a process of its own, with progress on standard error when that is a terminal."""
    import sys

    from trainledger.evidence.trace.job import Job
    from trainledger.evidence.trace.record import Record
    from trainledger.evidence.trace.runner import run_job

    def report(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\rtracing: {text[:60]:60}", end="", file=sys.stderr, flush=True)

    def run(job: Job) -> Record:
        try:
            return run_job(job, report, timeout)
        finally:
            if sys.stderr.isatty():
                print(f"\r{'':70}\r", end="", file=sys.stderr, flush=True)

    return run


Shown = tuple[str, bool, str, bool]  # units, lines, moment, as JSON


def _plan(draft: Draft, shown: Shown, how: tuple[str, Tracer]) -> int:
    from trainledger.answer.trace import trace as trace_plan

    units, lines, moment, as_json = shown
    answer = trace_plan(draft.plan, how[1])
    code = exit_code(how[0], answer.verdict)
    if as_json:
        from trainledger.show.document import document

        print(json.dumps(document(answer, draft, moment), indent=1))
    else:
        from trainledger.show.estimate import View, sections
        from trainledger.show.table import screen_of, write

        screen = screen_of()
        write(sections(answer, draft, View(units, lines, moment), screen), screen)
    return code


def _script(script: str, device: str, shown: Shown, how: tuple[str, Tracer]) -> int:
    from trainledger.answer.traced import trace_script
    from trainledger.facts.devices import device_from
    from trainledger.show.traced import document, sections

    units, lines, moment, as_json = shown
    answer = trace_script(script, device_from(device or None, "--device"), how[1])
    code = exit_code(how[0], answer.verdict)
    if as_json:
        print(json.dumps(document(answer, moment), indent=1))
    else:
        from trainledger.show.estimate import View
        from trainledger.show.table import screen_of, write

        screen = screen_of()
        write(sections(answer, script, View(units, lines, moment), screen), screen)
    return code
