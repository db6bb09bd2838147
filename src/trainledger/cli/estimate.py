"""`trainledger estimate`: the fullest rank's ledger at its peak, and the verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.units import SHOWN_UNITS
from trainledger.cli.gate import Gated, check_gate, exit_code

if TYPE_CHECKING:
    from trainledger.importers.draft import Draft

COMMAND = Gated  # the class of the command, for the root

PLAN_HELP = "A plan in YAML or JSON; - reads standard input."
SET_HELP = "Change a key: batch.micro_batch=2. May be given several times."
UNITS_HELP = f"The unit of sizes: {', '.join(SHOWN_UNITS)}."
GATE_HELP = "Exit with 1 when it does not fit; --gate=tight: when it may not, too."


def estimate(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help=PLAN_HELP)],
    sets: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Unfold every account to its lines.")] = False,
    moment: Annotated[str, typer.Option("--moment", help="Show this moment's lines, not the peak's.")] = "",
    rank: Annotated[str, typer.Option("--rank", help="A rank's number, or all.")] = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    gate: Annotated[str, typer.Option("--gate", metavar="[=tight]", help=GATE_HELP)] = "",
    quick: Annotated[bool, typer.Option("--quick", help="The rule of thumb: states, activations, 10 to 30 %.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """The ledger of the fullest rank at its peak, every moment, and the verdict.

    The lines that are live at the peak add up to it, exactly. `explain` shows how one account comes about.
    """
    check_units(units)
    check_gate(gate)
    from trainledger.importers.plan_file import read_draft

    if quick:
        _refuse_with_quick({"--lines": lines, "--moment": moment, "--rank": rank})
        raise typer.Exit(_quick(read_draft(plan, sets or ()), units, gate, as_json))
    from trainledger.answer.estimate import estimate as estimate_of
    from trainledger.answer.tables import rank_number

    draft = read_draft(plan, sets or ())
    answer = estimate_of(draft.plan, rank_number(draft.plan, rank))
    code = exit_code(gate, answer.verdict.outcome)
    if as_json:
        from trainledger.show.document import document

        print(json.dumps(document(answer, draft, moment, rank), indent=1))
    else:
        from trainledger.show.estimate import View, sections
        from trainledger.show.table import screen_of, write

        screen = screen_of()
        write(sections(answer, draft, View(units, lines, moment, rank), screen), screen)
    raise typer.Exit(code)


def check_units(units: str) -> None:
    """Raise InputError for a unit that sizes are not shown in."""
    if units not in SHOWN_UNITS:
        near = next((unit for unit in SHOWN_UNITS if unit.lower() == units.lower()), nearest(units, SHOWN_UNITS))
        fix = f"Did you mean {near}?" if near else ""
        raise InputError([Problem("--units", f"found {units!r}", f"one of {', '.join(SHOWN_UNITS)} is needed", fix)])


def _refuse_with_quick(given: dict[str, object]) -> None:
    problems = [
        Problem(name, "given with --quick", "the rule of thumb has no lines, moments or ranks", "Leave one out.")
        for name, value in given.items()
        if value
    ]
    if problems:
        raise InputError(problems)


def _quick(draft: Draft, units: str, gate: str, as_json: bool) -> int:
    from trainledger.answer.thumb import thumb

    answer = thumb(draft.plan)
    code = exit_code(gate, answer.verdict.outcome)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=1))
    else:
        from trainledger.show.table import screen_of, write
        from trainledger.show.thumb import sections

        write(sections(answer, units), screen_of())
    return code
