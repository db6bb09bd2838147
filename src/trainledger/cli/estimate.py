"""`trainledger estimate`: the fullest rank's ledger at its peak, and the verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.units import SHOWN_UNITS
from trainledger.cli.gate import Gated, check_gate, exit_code
from trainledger.cli.sources import Env, Files, OwnDevice, Sets, Versions, on_device, placed, read_files

if TYPE_CHECKING:
    from trainledger.importers.draft import Draft
    from trainledger.show.estimate import View

COMMAND = Gated  # the class of the command, for the root

UNITS_HELP = f"The unit of sizes: {', '.join(SHOWN_UNITS)}."
TIMELINE_HELP = "Memory over the run, action by action of the pipeline's schedule."
GATE_HELP = "Exit with 1 when it does not fit; --gate=tight: when it may not, too."


def estimate(
    files: Files,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    lines: Annotated[bool, typer.Option("--lines", help="Unfold every account to its lines.")] = False,
    moment: Annotated[str, typer.Option("--moment", help="Show this moment's lines, not the peak's.")] = "",
    rank: Annotated[str, typer.Option("--rank", help="A rank's number, or all.")] = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    timeline: Annotated[bool, typer.Option("--timeline", help=TIMELINE_HELP)] = False,
    gate: Annotated[str, typer.Option("--gate", metavar="[=tight]", help=GATE_HELP)] = "",
    quick: Annotated[bool, typer.Option("--quick", help="The rule of thumb: states, activations, 10 to 30 %.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """The ledger of the fullest rank at its peak, every moment, and the verdict.

    The lines that are live at the peak add up to it, exactly. `explain` shows how one account comes about.
    """
    check_units(units)
    check_gate(gate)
    sets = on_device(sets, device)
    given: dict[str, object] = {"--lines": lines, "--moment": moment}
    if quick:
        _refuse({**given, "--rank": rank, "--timeline": timeline}, "--quick", "a rule of thumb has no lines or ranks")
    if timeline:
        _refuse({**given, "--gate": gate}, "--timeline", "it has no lines and no verdict")
    draft = read_files(files, sets, env, versions)
    with placed(draft):
        if quick:
            raise typer.Exit(_quick(draft, units, gate, as_json))
        if timeline:
            raise typer.Exit(_timeline(draft, rank, units, as_json))
        from trainledger.show.estimate import View

        raise typer.Exit(_whole(draft, View(units, lines, moment, rank), gate, as_json))


def _whole(draft: Draft, view: View, gate: str, as_json: bool) -> int:
    from trainledger.answer.estimate import estimate as estimate_of
    from trainledger.answer.tables import rank_number

    answer = estimate_of(draft.plan, rank_number(draft.plan, view.rank))
    if as_json:
        from trainledger.show.document import document

        print(json.dumps(document(answer, draft, view.moment, view.rank), indent=1))
    else:
        from trainledger.show.estimate import sections
        from trainledger.show.table import screen_of, write

        screen = screen_of()
        write(sections(answer, draft, view, screen), screen)
    return exit_code(gate, answer.verdict)


def check_units(units: str) -> None:
    """Raise InputError for a unit that sizes are not shown in."""
    if units not in SHOWN_UNITS:
        near = next((unit for unit in SHOWN_UNITS if unit.lower() == units.lower()), nearest(units, SHOWN_UNITS))
        fix = f"Did you mean {near}?" if near else ""
        raise InputError([Problem("--units", f"found {units!r}", f"one of {', '.join(SHOWN_UNITS)} is needed", fix)])


def _refuse(given: dict[str, object], beside: str, why: str) -> None:
    problems = [Problem(name, f"given with {beside}", why, "Leave one out.") for name, value in given.items() if value]
    if problems:
        raise InputError(problems)


def _quick(draft: Draft, units: str, gate: str, as_json: bool) -> int:
    from trainledger.answer.thumb import thumb

    answer = thumb(draft.plan)
    code = exit_code(gate, answer.verdict)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=1))
    else:
        from trainledger.show.table import screen_of, write
        from trainledger.show.thumb import sections

        write(sections(answer, units, draft), screen_of())
    return code


def _timeline(draft: Draft, rank: str, units: str, as_json: bool) -> int:
    from trainledger.answer.tables import rank_number
    from trainledger.answer.timeline import timeline
    from trainledger.show.timeline import document, section

    found = timeline(draft.plan, rank_number(draft.plan, rank))
    if as_json:
        print(json.dumps(document(found), indent=1))
        return 0
    from trainledger.show.table import screen_of, write

    screen = screen_of()
    write((section(found, units, screen),), screen)
    return 0
