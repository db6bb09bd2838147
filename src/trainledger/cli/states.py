"""`trainledger states`: model states by recipe, without a model program."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trainledger.base.problems import Problem

RECIPE_HELP = "A recipe by name; may be given several times. All recipes where left out."
UNITS_HELP = "Unit of sizes on a rank and on disk: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB."


def states(
    params: Annotated[str, typer.Option("--params", help="Unique parameters: 7B, 5e12, 8030261248.")],
    recipe: Annotated[list[str] | None, typer.Option("--recipe", help=RECIPE_HELP)] = None,
    ranks: Annotated[str, typer.Option("--ranks", "--dp", help="Data-parallel ranks, d.")] = "1",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Bytes per parameter by kind, shares, totals, and what one rank holds under each way of splitting."""
    from trainledger.answer.states import problems_of
    from trainledger.answer.states import states as answer_of
    from trainledger.base.problems import InputError

    counts, problems = _counts({"params": params, "ranks": ranks})
    names = tuple(recipe or ())
    problems.extend([*problems_of(counts, names), *_unit_problems(units)])
    if problems:
        raise InputError(problems)
    answer = answer_of(counts["params"], names, counts["ranks"])
    if as_json:
        print(json.dumps(answer.to_dict(), indent=1))
        return
    from trainledger.show import states as shown

    _print(shown.title(answer), *shown.bytes_table(answer))
    _print("Shares: master weights with the optimizer | with the weights", *shown.shares_table(answer))
    _print("One rank's model states, between steps [bytes per parameter]", *shown.ranks_table(answer, units))
    _print("Checkpoint, metadata left out", *shown.disk_table(answer, units))
    for line in shown.notes(answer):
        print(line)


def _counts(texts: dict[str, str]) -> tuple[dict[str, int], list[Problem]]:
    """The counts that can be read, by key, and a problem for each that cannot."""
    from trainledger.base.problems import Problem
    from trainledger.base.units import parse_count

    counts: dict[str, int] = {}
    problems: list[Problem] = []
    for key, text in texts.items():
        try:
            counts[key] = parse_count(text)
        except ValueError as error:
            problems.append(Problem(key, str(error), "a count is needed", "Write for example 7B, 8e9 or 64."))
    return counts, problems


def _unit_problems(unit: str) -> list[Problem]:
    from trainledger.base.problems import Problem, nearest
    from trainledger.base.units import SHOWN_UNITS

    if unit in SHOWN_UNITS:
        return []
    near = nearest(unit, SHOWN_UNITS)
    fix = f"Did you mean {near}?" if near else ""
    return [Problem("units", f"found {unit!r}", f"one of {', '.join(SHOWN_UNITS)} is needed", fix)]


def _print(title: str, header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> None:
    """A table on a terminal; aligned columns, one line a row and no colour, where the output is piped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        print(title)
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            print("  ".join([first.strip().ljust(widths[0]), *rest]))
        print()
        return
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for index, name in enumerate(header):
        table.add_column(name, justify="right" if index else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    console.print()
