"""`trainledger checkpoint`: what a checkpoint takes on disk, and what resuming elsewhere takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from trainledger.base.problems import wrong
from trainledger.cli.estimate import UNITS_HELP, check_units
from trainledger.cli.sources import Env, Files, OwnDevice, Sets, Versions, on_device, placed, read_files

if TYPE_CHECKING:
    from trainledger.answer.budgets import Budgets
    from trainledger.answer.checkpoint import Checkpoint
    from trainledger.answer.estimate import Estimate
    from trainledger.answer.resume_read import Resume

RESUME_HELP = "Say what the ranks of this plan, or run's own file, read of it."
WORLD_HELP = "Say what so many ranks read of it: the same plan with other data parallelism."
UNIVERSAL_HELP = "DeepSpeed's is converted to a universal checkpoint first, which other ranks and stages read."


class Elsewhere(NamedTuple):
    """Where it is resumed: the plan's file, or a number of ranks; whether it is converted first."""

    file: str
    world: int | None
    universal: bool


def checkpoint(
    files: Files,
    sets: Sets = None,
    env: Env = None,
    versions: Versions = None,
    device: OwnDevice = "",
    resume: Annotated[str, typer.Option("--resume", metavar="FILE", help=RESUME_HELP)] = "",
    world: Annotated[int | None, typer.Option("--resume-world", metavar="N", help=WORLD_HELP)] = None,
    universal: Annotated[bool, typer.Option("--universal", help=UNIVERSAL_HELP)] = False,
    units: Annotated[str, typer.Option("--units", help=UNITS_HELP)] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """A checkpoint of a plan: its files, who writes them, how many are kept, and what a resume needs.

    `--set save.format=fsdp-full` asks for another format than the framework's own.
    """
    check_units(units)
    draft = read_files(files, on_device(sets, device), env, versions)
    from trainledger.answer.disk import beside
    from trainledger.answer.estimate import estimate

    with placed(draft):
        answer = estimate(draft.plan)
        budgets = beside(answer)
    read = _resumed(answer, budgets, Elsewhere(resume, world, universal))
    found = budgets.checkpoint
    if as_json:
        data = found.to_dict()
        if read is not None:
            data["resume"]["read"] = read.to_dict()
        print(json.dumps(data, indent=1))
        return
    _print(found, read, units)


def _print(found: Checkpoint, read: Resume | None, units: str) -> None:
    from trainledger.show.estimate import View
    from trainledger.show.places import checkpoint_sections, resume_section
    from trainledger.show.table import screen_of, write

    size = View(units).size
    sections = list(checkpoint_sections(found, size))
    more = [resume_section(read, size)] if read is not None else []
    write((*sections[:-1], *more, *sections[-1:]), screen_of())


def _resumed(answer: Estimate, budgets: Budgets, where: Elsewhere) -> Resume | None:
    """What resuming there takes; None where nothing was asked. Raises InputError where it cannot be."""
    from trainledger.answer.check import check
    from trainledger.answer.resume import at_world, resume
    from trainledger.answer.resume_read import Written
    from trainledger.answer.saved import saved_of
    from trainledger.model.build import model_of

    plan = answer.plan
    if where.file and where.world is not None:
        raise wrong("--resume-world", f"found {where.world}", "given with --resume", "Give one of them.")
    if not where.file and where.world is None:
        if where.universal:
            raise wrong("--universal", "given alone", "it says how a resume reads it", "Add --resume-world N.")
        return None
    other = read_files([where.file], None, None, None).plan if where.world is None else at_world(plan, where.world)
    check(other)
    made = Written(plan, answer.model, budgets.checkpoint, saved_of(plan, answer.model, answer.ledger))
    return resume(made, other, model_of(other), where.universal)
