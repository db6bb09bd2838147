"""`--gate`: an exit code that says whether the run fits, and the option that may stand with or without a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.cli.exits import ExitCode
from trainledger.cli.verb import Verb

FITS, TIGHT = "fits", "tight"
FLAG = "--gate"
UNJUDGED = "cannot be judged"  # a place that holds tensors and has no size, in a verdict's reasons


class Gated(Verb):
    """A command whose `--gate` needs no value: the parser itself would take the next word for one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with a bare `--gate` written out."""
        end = args.index("--") if "--" in args else len(args)
        full = [f"{FLAG}={FITS}" if word == FLAG and place < end else word for place, word in enumerate(args)]
        return super().parse_args(ctx, full)


def check_gate(gate: str) -> None:
    """Raise InputError for a gate that there is none of."""
    if gate not in ("", FITS, TIGHT):
        raise InputError([Problem(FLAG, f"found {gate!r}", f"{FLAG} or {FLAG}={TIGHT} is needed")])


def exit_code(gate: str, outcome: str | None, reasons: Sequence[str] = ()) -> ExitCode:
    """1 when a gate was asked for and the run does not fit (or, with `tight`, may not). No verdict passes no gate:
    InputError names the device, or the place (by the verdict's `reasons`), whose size is missing."""
    if gate and outcome is None:
        raise InputError([_ungated(reasons)])
    refused = {"does-not-fit", "tight"} if gate == TIGHT else {"does-not-fit"}
    return ExitCode.DOES_NOT_FIT if gate and outcome in refused else ExitCode.ANSWERED


def _ungated(reasons: Sequence[str]) -> Problem:
    place = next((one for one in reasons if UNJUDGED in one), "")
    if place:
        return Problem(FLAG, place, "a gate compares with the size of every place that holds tensors")
    return Problem(FLAG, "the plan names no device", "a gate compares with a device", "Add --set device=h100-80gb.")
