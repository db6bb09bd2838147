"""`trainledger states`: model states by recipe, without a model program; or as other tools' estimators count them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from trainledger.answer.states import States
    from trainledger.base.problems import Problem
    from trainledger.plan.schema import Plan
    from trainledger.show.table import Section

RECIPE_HELP = "A recipe by name; may be given several times. All recipes where left out."
UNITS_HELP = "Unit of sizes on a rank and on disk: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB."


FILES_HELP = "For --as: a plan, or the run's own files together."
AS_HELP = "What another tool prints: deepspeed-zero2, deepspeed-zero3, accelerate (a plan is needed)."
RANKS_HELP = "Data-parallel ranks, d; 1 where left out."
LARGEST_HELP = "Parameters of the largest module, where no plan says so (deepspeed-zero3)."


def states(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE...]", help=FILES_HELP)] = None,
    params: Annotated[str, typer.Option("--params", help="Unique parameters: 7B, 5e12, 8030261248.")] = "",
    recipe: Annotated[list[str] | None, typer.Option("--recipe", help=RECIPE_HELP)] = None,
    ranks: Annotated[str, typer.Option("--ranks", "--dp", help=RANKS_HELP)] = "",
    tool: Annotated[str, typer.Option("--as", metavar="TOOL", help=AS_HELP)] = "",
    release: Annotated[str, typer.Option("--release", help="That tool's release; the plan's where left out.")] = "",
    largest: Annotated[str, typer.Option("--largest", help=LARGEST_HELP)] = "",
    per_node: Annotated[str, typer.Option("--per-node", help="Devices of a node; all where left out.")] = "",
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """Bytes per parameter by kind, shares, totals, and what one rank holds under each way of sharding."""
    from trainledger.answer.states import problems_of
    from trainledger.answer.states import states as answer_of
    from trainledger.base.problems import InputError

    if tool:
        _refuse({"--recipe": bool(recipe)}, f"{tool} counts by a rule of its own")
        _as_tool(tool, files or [], (params, ranks), (release, largest, per_node), (units, as_json))
        return
    _no_files(files)
    _refuse({"--release": release, "--largest": largest, "--per-node": per_node}, "it is read for --as TOOL")
    ranks = ranks or "1"
    counts, problems = _counts({"params": params, "ranks": ranks})
    names = tuple(recipe or ())
    problems.extend([*problems_of(counts, names), *_unit_problems(units)])
    if problems:
        raise InputError(problems)
    answer = answer_of(counts["params"], names, counts["ranks"])
    if as_json:
        print(json.dumps(answer.to_dict(), indent=1))
        return
    _tables(answer, units)


def _tables(answer: States, units: str) -> None:
    from trainledger.show import states as shown

    tables = (
        _table(shown.title(answer), *shown.bytes_table(answer)),
        _table("Shares: master weights with the optimizer | with the weights", *shown.shares_table(answer)),
        _table("One rank's model states, between steps [bytes per parameter]", *shown.ranks_table(answer, units)),
        _table("Checkpoint, metadata left out", *shown.disk_table(answer, units)),
    )
    _write(tables, shown.notes(answer))


def _no_files(files: list[str] | None) -> None:
    from trainledger.base.problems import InputError, Problem

    if files:
        raise InputError(
            [Problem("--as", "not given beside files", "files are read for --as TOOL; else give --params")]
        )


def _refuse(given: Mapping[str, str | bool], why: str) -> None:
    """Raise InputError for what would count for nothing."""
    from trainledger.base.problems import InputError, Problem

    if any(given.values()):
        raise InputError([Problem(key, "given", why, "Leave it out.") for key, value in given.items() if value])


def _as_tool(
    tool: str, files: list[str], given: tuple[str, str], more: tuple[str, str, str], view: tuple[str, bool]
) -> None:
    from trainledger.answer.theirs import PACKAGE, ZERO3, Counted, counted, release_problems, theirs
    from trainledger.base.problems import InputError

    (params, ranks), (release, largest, per_node), (units, as_json) = given, more, view
    if files:
        _refuse({"--params": params, "--ranks": ranks, "--largest": largest}, "the files say it")
    elif tool != ZERO3:
        _refuse({"--largest": largest}, f"{ZERO3} alone asks for it")
    asked = (("largest", largest), ("per-node", per_node))
    texts = {"ranks": ranks or "1", **{key: text for key, text in asked if text}}
    counts, problems = _counts(texts if files else {**texts, "params": params})
    problems.extend([*_unit_problems(units), *release_problems(tool, release)])
    if problems:
        raise InputError(problems)
    found = None
    if files:
        from trainledger.cli.sources import read_files, told
        from trainledger.model.build import build
        from trainledger.plan.degrees import degrees

        found = told(read_files(files, None, None, None)).plan
        world = degrees(found).world
        counts_of = counted(build(found.keys()), world, counts.get("per-node", world))
        release = release or found.stack.versions.get(PACKAGE.get(tool, ""), "")
    else:
        devices = counts["ranks"]
        counts_of = Counted(counts["params"], counts.get("largest", 0), devices, counts.get("per-node", devices))
    answer = theirs(tool, counts_of, release)
    if as_json:
        print(json.dumps(answer.to_dict(), indent=1))
        return
    from trainledger.show import theirs as shown

    tables = (_table(shown.title(answer), *shown.rows(answer, units)),)
    _write(tables, (*shown.notes(answer), *_ours(found, units)))


def _ours(plan: Plan | None, units: str) -> tuple[str, ...]:
    """This program's own numbers of the plan, where it can be estimated."""
    from trainledger.answer.estimate import estimate
    from trainledger.base.problems import InputError
    from trainledger.show.theirs import beside

    if plan is None:
        return ()
    try:
        return beside(estimate(plan), units)
    except InputError:
        return ()


def _counts(texts: dict[str, str]) -> tuple[dict[str, int], list[Problem]]:
    """The counts that can be read, by key, and a problem for each that cannot."""
    from trainledger.base.problems import Problem
    from trainledger.base.units import parse_count

    counts: dict[str, int] = {}
    problems: list[Problem] = []
    for key, text in texts.items():
        if not text:
            problems.append(Problem(key, "not given", "a count is needed", "Write for example --params 7B."))
            continue
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


def _table(title: str, header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> Section:
    from trainledger.show.table import Section

    return Section(title, (), header, rows, tuple(range(1, len(header))))


def _write(tables: Sequence[Section], notes: Iterable[str]) -> None:
    from trainledger.show.table import Section, screen_of, write

    write((*tables, Section("", tuple(notes))), screen_of())
