"""The root of the command line: the list of verbs, the exit codes, and nothing that takes time to import.

A verb is a function of the same name in the module of the same name beside this file. It is imported when it is
called or completed, never for the list of verbs, so that `trainledger --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from keyword import iskeyword
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from trainledger import __version__
from trainledger.base.problems import InputError, Problem, TraceError
from trainledger.cli.exits import ExitCode
from trainledger.cli.verb import Verb

VERBS: dict[str, str] = {
    "estimate": "The fullest rank's ledger at its peak, and the verdict.",
    "trace": "The same ledger from real code, a plan's or your own; no GPU.",
    "explain": "One account of the ledger, each line with its source.",
    "advise": "What to change, with the bytes saved and the price.",
    "fit": "The largest micro-batch, sequence or model that still fits.",
    "compare": "Plans side by side, and what each difference moved.",
    "import": "The run's own files as a plan, each key with its origin.",
    "export": "The plan as files of DeepSpeed, Axolotl, Megatron-LM, ...",
    "search": "The fastest legal plans that fit on given devices.",
    "layout": "Where one rank's parameters lie, range by range.",
    "states": "Bytes per parameter and per rank, by recipe.",
    "kv": "Bytes that a rollout engine caches for each token.",
    "checkpoint": "What a checkpoint takes on disk, file by file.",
    "review": "One page of model states, for an architecture review.",
    "models": "The model catalogue: names, parameter counts, sources.",
    "devices": "The devices a plan can name, with their memory.",
    "schema": "The JSON Schema of a plan.",
    "accuracy": "Estimates against measured run records.",
}
DEBUG = "TRAINLEDGER_DEBUG"
COMPLETIONS = ("install_completion", "show_completion")
SHELL = "it takes none: completion is for the shell that runs the program"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # the disk that output is sent to, not the program


class Verbs(TyperGroup):
    """The verbs' group: lists stubs (name and one line), and swaps in the real command when one is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that `args` calls. Completion comes this way too, so a verb's options complete."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub if name is None else load(name), rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse. Raises InputError for a word after an option of completion, which would be passed over in silence."""
        for one in (part for part in self.params if part.name in COMPLETIONS and getattr(part, "is_flag", False)):
            for name, word in pairwise(args):
                if name in one.opts and not word.startswith("-"):
                    raise InputError([Problem(name, f"found {word!r} after it", SHELL, "Leave the word out.")])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. A reader that left is caught here: the parser would give it the code of a plan too large."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(_hush()) from None


def load(verb: str) -> Any:
    """The command of one verb, built from its function. Raises ImportError when its module is missing."""
    name = f"{verb}_" if iskeyword(verb) else verb
    module = import_module(f"trainledger.cli.{name}")
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(verb, cls=getattr(module, "COMMAND", Verb))(getattr(module, name))
    command = get_command(single)
    command.name = verb
    return command


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trainledger {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Print the version."),
) -> None:
    """What every rank of a training run will hold in memory, line by line and moment by moment."""


def _stub() -> None:
    raise NotImplementedError


def _build() -> typer.Typer:
    built = typer.Typer(
        name="trainledger",
        cls=Verbs,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    built.callback()(_root)
    for verb, line in VERBS.items():
        built.command(verb, help=line)(_stub)
    return built


app = _build()


def _interrupted() -> int:
    print("Interrupted; no answer was written.", file=sys.stderr)
    return ExitCode.INTERRUPTED


def _failure(error: Exception) -> int:
    """Tell the user what went wrong, on standard error, and give the exit code."""
    if isinstance(error, InputError):
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return ExitCode.WRONG_INPUT
    if callable(show := getattr(error, "show", None)):  # the parser's own complaint about a command line
        show()
        return ExitCode.WRONG_INPUT
    if isinstance(error, typer.Abort):
        return _interrupted()
    if isinstance(error, TraceError):
        print(f"trace: {error}", file=sys.stderr)
        return ExitCode.DEFECT
    if isinstance(error, OSError) and error.errno in FULL and not error.filename:
        print(f"standard output: {error.strerror}; the answer is not whole.", file=sys.stderr)
        return _hush(ExitCode.DEFECT)
    if os.environ.get(DEBUG):
        from traceback import print_exception

        print_exception(error)
    hint = "" if os.environ.get(DEBUG) else f" Set {DEBUG}=1 for the traceback."
    print(f"trainledger: this is a defect, please report it: {type(error).__name__}: {error}.{hint}", file=sys.stderr)
    return ExitCode.DEFECT


def _hush(code: int = ExitCode.BROKEN_PIPE) -> int:
    """Point standard output at nothing, so that the flush at exit does not complain about a reader that left or a
    disk that is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and give its exit code. Never raises."""
    try:
        code = get_command(app).main(args=arguments, prog_name="trainledger", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _hush()
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as left:  # the parser leaves this way, with 1 for a reader that left and an unknown shell alike
        wrong = ExitCode.BROKEN_PIPE if isinstance(left.__context__, BrokenPipeError) else ExitCode.WRONG_INPUT
        return wrong if left.code else ExitCode.ANSWERED
    except Exception as error:
        return _failure(error)
    if code == ExitCode.INTERRUPTED:  # the parser's own answer to Ctrl-C within a verb
        return _interrupted()
    return code if isinstance(code, int) else ExitCode.ANSWERED
