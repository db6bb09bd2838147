"""`trainledger accuracy`: estimates against measured run records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from trainledger.answer.accuracy import Accuracy, Case, OperatorCase
    from trainledger.answer.estimate import Estimate
    from trainledger.importers.records import OperatorRecord, Record

ENGINES = ("formula", "trace")


def accuracy(
    records: list[str] = typer.Argument(..., metavar="RECORDS.jsonl...", help="Files of run records."),
    as_json: bool = typer.Option(False, "--json", help="Print for programs: errors as fractions."),
    markdown: bool = typer.Option(False, "--markdown", help="Print the published page."),
    worst: int = typer.Option(0, "--worst", metavar="N", min=0, help="Also list the N rows with the largest errors."),
    engine: str = typer.Option("formula", "--engine", help="Which witness estimates: formula or trace."),
    confidence: str = typer.Option("", "--confidence", metavar="A|B|C", help="Only rows of at least this confidence."),
    above: str = typer.Option("", "--above", metavar="SIZE", help="Only rows that measured more than this."),
) -> None:
    """How far estimates are from what runs measured, by group and metric, and how often the verdict was wrong."""
    from trainledger.answer.accuracy import accuracy as compare

    _one_form(as_json, markdown)
    cases, operators = _cases(records, _confidences(confidence), (above, _engine(engine)))
    with _ahead(cases, engine) as ordered:
        result = compare(ordered, _progress(len([*cases, *operators])), operators)
    _print(result, as_json, markdown, worst)


@contextmanager
def _ahead(cases: list[Case], engine: str) -> Iterator[list[Case]]:
    """The cases; those that trace, each in a process of its own, are made ahead, as many at once as there are cores."""
    if engine != "trace":
        yield cases
        return
    import os
    from concurrent.futures import ThreadPoolExecutor
    from dataclasses import replace

    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        yield [replace(case, make=pool.submit(case.make).result) for case in cases]
    finally:
        pool.shutdown(cancel_futures=True)


def _one_form(as_json: bool, markdown: bool) -> None:
    from trainledger.base.problems import InputError, Problem

    if as_json and markdown:
        raise InputError([Problem("--markdown", "given beside --json", "one form at a time", "Leave one out.")])


def _engine(name: str) -> str:
    from trainledger.base.problems import InputError, Problem

    if name not in ENGINES:
        raise InputError([Problem("--engine", f"found {name!r}", f"one of {', '.join(ENGINES)} is needed")])
    return name


def _confidences(least: str) -> str:
    from trainledger.base.problems import InputError, Problem
    from trainledger.importers.records import CONFIDENCES

    if least and least.upper() not in CONFIDENCES:
        raise InputError([Problem("--confidence", f"found {least!r}", f"one of {', '.join(CONFIDENCES)}")])
    return "".join(one for one in CONFIDENCES if not least or one <= least.upper())


def _cases(paths: list[str], confidences: str, how: tuple[str, str]) -> tuple[list[Case], list[OperatorCase]]:
    from trainledger.base.problems import InputError, Problem
    from trainledger.importers.records import OperatorRecord, Record, read_records

    above, engine = how
    least = _least(above)
    problems: list[Problem] = []
    cases: list[Case] = []
    operators: list[OperatorCase] = []
    for path in paths:
        for record in read_records(path):
            if isinstance(record, Problem):
                problems.append(record)
            elif (record.measured.size or least) < least:
                continue
            elif isinstance(record, OperatorRecord):
                operators.extend(_operator(record) if engine == "formula" else [])
            elif isinstance(record, Record) and record.confidence in confidences:
                cases.append(_case(record, engine))
    if problems:
        raise InputError(problems)
    if not cases and not operators:
        fix = "Loosen the filters: --confidence, --above, --engine."
        raise InputError([Problem("", "no run record is left", "at least one is needed", fix)])
    return cases, operators


def _least(above: str) -> int:
    from trainledger.base.problems import InputError, Problem
    from trainledger.base.units import parse_size

    try:
        return parse_size(above) if above else 0
    except ValueError as error:
        raise InputError([Problem("--above", str(error), "a size such as 8GB is needed")]) from None


def _operator(record: OperatorRecord) -> list[OperatorCase]:
    """The case of a record of one operator; none where it ran out of memory."""
    from trainledger.answer.accuracy import OperatorCase, Reading

    measured = record.measured
    if measured.size is None:
        return []

    def make() -> int | None:
        from trainledger.ledger.operators import OperatorRun, operator_peak

        release = re.search(r"liger ([0-9.]+)", str(record.source.get("note", "")))
        return operator_peak(
            OperatorRun(
                operator=record.operator,
                implementation=record.implementation,
                shape=record.shape,
                dtype=record.dtype,
                passes=record.passes,
                metric=measured.metric,
                release=release[1] if release else "",
                device=str(record.device or ""),
            )
        )

    return [OperatorCase(record.id, Reading(measured.metric, measured.size, measured.rounding, ""), make)]


def _case(record: Record, engine: str) -> Case:
    from trainledger.answer.accuracy import METRICS, Case, Reading

    measured = record.measured
    rank = str(measured.rank)
    readings = []
    if measured.size is not None and measured.metric in METRICS:
        readings.append(Reading(measured.metric, measured.size, measured.rounding, rank))
    for metric in METRICS:
        extra = measured.extra.get(metric)
        if isinstance(extra, int) and not isinstance(extra, bool) and extra > 0 and metric != measured.metric:
            readings.append(Reading(metric, extra, measured.rounding, rank))
    return Case(
        id=record.id,
        group=record.group,
        readings=tuple(readings),
        outcome=measured.outcome,
        assumed="measured.outcome" in record.assumed,
        make=_maker(record, engine),
        inputs=tuple(name for name in record.assumed if not name.startswith("measured.")),
    )


def _maker(record: Record, engine: str) -> Callable[[], Estimate]:
    def trace() -> Estimate:
        from trainledger.answer.trace import trace as trace_of
        from trainledger.evidence.trace.runner import run_job

        return trace_of(record.draft().plan, run_job)

    def make() -> Estimate:
        from trainledger.answer.estimate import estimate
        from trainledger.plan.degrees import degrees

        rank, plan = record.measured.rank, record.draft().plan
        if rank == "last":
            rank = degrees(plan).world - 1
        return estimate(plan, rank if isinstance(rank, int) else None)

    return trace if engine == "trace" else make


def _progress(count: int) -> Callable[[str], None]:
    """A line on standard error that is written over, when it goes to a terminal."""
    import sys

    if not sys.stderr.isatty():
        return lambda name: None
    done: list[str] = []

    def report(name: str) -> None:
        done.append(name)
        end = "\n" if len(done) == count else ""
        print(f"\r{len(done)} of {count} {name[:60]:60}", end=end, file=sys.stderr, flush=True)

    return report


def _print(result: Accuracy, as_json: bool, as_markdown: bool, worst: int) -> None:
    import json

    from trainledger.show.accuracy import document, markdown, text

    if as_json:
        typer.echo(json.dumps(document(result), indent=1))
    elif as_markdown:
        typer.echo(markdown(result, result.worst(worst, estimated=True)), nl=False)
    else:
        typer.echo(text(result, result.worst(worst)))
