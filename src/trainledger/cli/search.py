"""`trainledger search`: the fastest legal plans of a goal that fit, and the front of memory against time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.output import FORCE_HELP
from trainledger.cli.sources import Env, Sets, Versions
from trainledger.facts.limits import GLOBAL_BATCH

if TYPE_CHECKING:
    from trainledger.answer.search_answer import Answer, Progress
    from trainledger.answer.search_goal import Goal

MODEL_HELP = "A model's name, or any file that `estimate` takes, whose other keys are kept."
DEVICES_HELP = "How many of which device: 64xh100-80gb."
BATCH_HELP = "Sequences of one step over all devices. Left out: the file's, else the devices' multiple from 128 on."
SEQUENCE_HELP = "Tokens of a sequence. Left out: the file's, else 8192."
FRAMEWORK_HELP = "megatron, torchtitan, transformers or deepspeed. Left out: the file's, else megatron."
LIMIT_HELP = "At most so many exact estimates."
JOBS_HELP = "Estimates at once, through joblib. Left out: all cores where joblib is there."
BACKEND_HELP = "What runs them: loky (this machine), dask or ray."
CLUSTER_HELP = "The address of a Dask scheduler or a Ray cluster; left out, one is started here."
STATE_HELP = "Keep estimates in this file; a search that was stopped goes on from it."
PLAN_HELP = "Write the first plan to this file, in YAML."
SOLVE_HELP = "Let a solver (highspy) choose the stages and what runs again of pipelines that come near."


def search(
    model: Annotated[list[str], typer.Argument(metavar="MODEL|FILE", help=MODEL_HELP)],
    devices: Annotated[str, typer.Option("--devices", metavar="COUNTxDEVICE", help=DEVICES_HELP)],
    global_batch: Annotated[
        int | None, typer.Option("--global-batch", min=1, max=GLOBAL_BATCH.value, help=BATCH_HELP)
    ] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=1, help=SEQUENCE_HELP)] = None,
    framework: Annotated[str, typer.Option("--framework", help=FRAMEWORK_HELP)] = "",
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    top: Annotated[int, typer.Option("--top", min=1, help="So many plans are ranked.")] = 10,
    limit: Annotated[int, typer.Option("--limit", min=1, help=LIMIT_HELP)] = 400,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", help=JOBS_HELP)] = None,
    backend: Annotated[str, typer.Option("--backend", help=BACKEND_HELP)] = "loky",
    cluster: Annotated[str, typer.Option("--cluster", metavar="ADDRESS", help=CLUSTER_HELP)] = "",
    solve: Annotated[bool | None, typer.Option("--solve/--no-solve", help=SOLVE_HELP)] = None,
    state: Annotated[str, typer.Option("--state", metavar="FILE", help=STATE_HELP)] = "",
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help=PLAN_HELP)] = "",
    force: Annotated[bool, typer.Option("--force", help=FORCE_HELP)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")] = False,
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: bytes, seconds, plans.")] = False,
) -> None:
    """The fastest legal plans that fit, by estimated step time, and the front of memory against time.

    Every legal plan is timed and bounded; few are estimated exactly. Ctrl-C ends it; with --state it goes on later.
    """
    check_units(units)
    from trainledger.cli.output import check_output
    from trainledger.importers.search_jobs import check_backend

    check_output(output, force)
    count = _jobs(jobs)
    check_backend(backend, count)
    goal = _goal(model, (sets, env, versions), framework, (devices, global_batch, sequence))
    answer = _run(goal, (top, limit, _solver(solve), quiet), (count, backend, cluster), (state, force))
    _print(answer, output, units, as_json)


Texts = list[str] | None


def _goal(
    sources: list[str], more: tuple[Texts, Texts, Texts], framework: str, asked: tuple[str, int | None, int | None]
) -> Goal:
    from trainledger.answer.search_goal import goal_of
    from trainledger.base.problems import InputError, Problem
    from trainledger.cli.sources import pairs
    from trainledger.importers.search_template import template_of

    problems: list[Problem] = []
    sets, env, versions = more
    variables, releases = pairs("--env", "=", env, problems), pairs("--framework-version", "==", versions, problems)
    if problems:
        raise InputError(problems)
    return goal_of(template_of(sources, sets or (), framework, asked[0], (variables, releases)), *asked)


def _jobs(given: int | None) -> int:
    from trainledger.importers.search_jobs import installed
    from trainledger.importers.search_state import cores

    return given if given is not None else cores() if installed("joblib") else 1


def _solver(asked: bool | None) -> bool:
    """Whether a solver is to run: where it is asked for, or is there and not unwanted. Raises InputError without it."""
    from trainledger.base.problems import InputError, Problem
    from trainledger.importers.search_jobs import EXTRA, installed

    if asked and not installed("highspy"):
        raise InputError([Problem("--solve", "highspy is not installed", "it chooses the stages", EXTRA)])
    return installed("highspy") if asked is None else asked


def _run(goal: Goal, wanted: tuple[int, int, bool, bool], how: tuple[int, str, str], kept: tuple[str, bool]) -> Answer:
    from contextlib import closing, nullcontext

    from trainledger.answer.search import search as searched
    from trainledger.answer.search_answer import How
    from trainledger.answer.search_refine import refined
    from trainledger.importers.search_jobs import running
    from trainledger.importers.search_state import State

    top, limit, solves, quiet = wanted
    path, force = kept
    with _told(path), running(*how) as run, closing(State(path, goal, force)) if path else nullcontext() as store:
        made = How(
            top=top, limit=limit, run=run, store=store, report=None if quiet else _reporter(),
            refine=refined if solves else None, together=how[0],
        )  # fmt: skip
        return searched(goal, made)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Where what was estimated is kept, when the search is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        if path:
            print(f"\n{path} keeps what was estimated: the same command goes on from it.", file=sys.stderr)
        raise


def _reporter() -> Callable[[Progress], None]:
    """Says where the search stands: one line that changes on a terminal, else a line for each better plan."""
    from trainledger.show.search import progress_line

    terminal, last = sys.stderr.isatty(), [""]

    def tell(found: Progress) -> None:
        line = progress_line(found)
        if terminal:
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            return
        best = line.partition("; ")[2]
        if best != last[0]:
            last[0] = best
            print(line, file=sys.stderr, flush=True)

    return tell


def _print(answer: Answer, output: str, units: str, as_json: bool) -> None:
    from trainledger.cli.output import write_output
    from trainledger.show.search import document, plan_lines, sections
    from trainledger.show.table import screen_of, write

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if output and answer.ranked:
        write_output(output, plan_lines(answer))
    if as_json:
        print(json.dumps(document(answer), indent=1))
    else:
        write(sections(answer, units), screen_of())
