"""`--gate`: an exit code that says whether the run fits, and the option that may stand with or without a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainledger.base.places import Place
from trainledger.base.problems import InputError, Problem
from trainledger.cli.exits import ExitCode
from trainledger.cli.verb import Verb

if TYPE_CHECKING:
    from trainledger.answer.verdict import Verdict

FITS, TIGHT = "fits", "tight"
FLAG = "--gate"


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


def exit_code(gate: str, verdict: Verdict) -> ExitCode:
    """1 when a gate was asked for and the run does not fit (or, with `tight`, may not). No verdict passes no gate:
    InputError names the device, or the other place, whose size is missing."""
    if gate and verdict.outcome is None:
        raise InputError([_ungated(verdict)])
    return exit_code_of(gate, verdict.outcome)


def exit_code_of(gate: str, outcome: str | None) -> ExitCode:
    """The exit code of an outcome that there is."""
    refused = {"does-not-fit", "tight"} if gate == TIGHT else {"does-not-fit"}
    return ExitCode.DOES_NOT_FIT if gate and outcome in refused else ExitCode.ANSWERED


def _ungated(verdict: Verdict) -> Problem:
    beyond = next((one for one in verdict.unjudged if one.place != Place.DEVICE), None)
    if beyond:
        return Problem(FLAG, beyond.reason, "a gate compares with the size of every place that holds tensors")
    return Problem(FLAG, "the plan names no device", "a gate compares with a device", "Add --set device=h100-80gb.")
