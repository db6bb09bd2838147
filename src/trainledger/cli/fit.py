"""`trainledger fit`: the limits of a plan on its device."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.cli.estimate import GATE_HELP, UNITS_HELP, check_units
from trainledger.cli.gate import Gated, check_gate, exit_code_of
from trainledger.cli.sources import Env, Files, OwnDevice, Sets, Versions, on_device, placed, read_files

if TYPE_CHECKING:
    from trainledger.answer.changed import Data
    from trainledger.answer.fit import Fit, Wanted

COMMAND = Gated  # the class of the command, for the root

FIND_HELP = (
    "What to look for: micro-batch, sequence, lora-rank, layers-unfrozen (the last layers trained, all else frozen), "
    "model, device, devices, tp, pp, cp, ep. May be given several times; left out, micro-batch and sequence."
)
FRONTIER_HELP = (
    "The micro-batch of each sequence, as a table; with --find layers-unfrozen the layers of each sequence, and with "
    "--find micro-batch too those of each micro-batch."
)
FAMILY_HELP = "Models whose names begin so (qwen2.5), for --find model; left out, those of the plan's model type."
CONFIDENCE_HELP = "How sure: 0.95 is the interval's high end, 0.5 its expected value."
MEASURED_HELP = (
    "What a small run showed: a file of run records, or reserved=11GiB,batch.micro_batch=1 (device, reserved or "
    "allocated, and the keys that differed). May be given several times."
)


def fit(
    files: Files,
    find: Annotated[list[str] | None, typer.Option("--find", metavar="WHAT", help=FIND_HELP)] = None,
    frontier: Annotated[bool, typer.Option("--frontier", help=FRONTIER_HELP)] = False,
    measured: Annotated[list[str] | None, typer.Option("--measured", metavar="RUN", help=MEASURED_HELP)] = None,
    confidence: Annotated[float, typer.Option("--confidence", help=CONFIDENCE_HELP)] = 0.95,
    family: Annotated[str, typer.Option("--family", metavar="NAME", help=FAMILY_HELP)] = "",
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    gate: Annotated[str, typer.Option("--gate", metavar="[=tight]", help=GATE_HELP)] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """The largest micro-batch, sequence, adapter's rank, number of trained layers or model, or the fewest devices, that
    still fit, and what the wall is.

    Every value is a whole estimate of the changed plan; one step more does not fit.
    """
    check_units(units)
    check_gate(gate)
    from trainledger.answer.fit import USUAL, Wanted, knob_of
    from trainledger.show.fit import document, sections

    wanted = Wanted(tuple(dict.fromkeys(map(knob_of, find or ()))) or USUAL, family, frontier)
    draft = read_files(files, on_device(sets, device), env, versions)
    with placed(draft):
        found = _limits(draft.data, wanted, confidence, measured or [])
    if as_json:
        print(json.dumps(document(found), indent=1))
    else:
        from trainledger.show.estimate import View
        from trainledger.show.table import screen_of, write

        write(sections(found, View(units)), screen_of())
    raise typer.Exit(exit_code_of(gate, found.outcome))


def _limits(data: Data, wanted: Wanted, confidence: float, measured: list[str]) -> Fit:
    from trainledger.answer.anchor import unexplained
    from trainledger.answer.fit import fit as limits_of
    from trainledger.cli.progress import progress
    from trainledger.importers.measured import measured_runs

    runs = measured_runs(tuple(measured), data)
    return limits_of(data, wanted, confidence, unexplained(runs) if runs else None, progress("fitting"))
