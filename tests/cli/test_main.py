"""The root of the command line: verbs listed without their imports, exit codes, no traceback, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType

import pytest

from trainledger import __version__
from trainledger.base.problems import InputError, Problem
from trainledger.cli import main as root
from trainledger.cli.exits import ExitCode

PROGRAM = [sys.executable, "-m", "trainledger"]
HEAVY = {"rich", "pydantic", "numpy", "yaml", "torch", "transformers"}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a process of its own."""
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=60
    )


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch):
    """Put a function in the place of the verb `schema`."""

    def place(function) -> None:
        module = ModuleType("trainledger.cli.schema")
        module.schema = function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return place


def raising(error: BaseException):
    """A verb that fails with this error."""

    def schema() -> None:
        raise error

    return schema


def test_help_lists_every_verb() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, line in root.VERBS.items():
        assert f"  {name}" in done.stdout
        assert line in done.stdout, "the line is cut off; make it shorter"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom trainledger.cli.main import main\n"
        f"main(['--help'])\nprint(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_no_arguments_show_the_help() -> None:
    done = run()
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"trainledger {__version__}\n")


@pytest.mark.parametrize("name", sorted(root.VERBS))
def test_a_verb_is_a_function_of_its_module(name: str) -> None:
    if find_spec(f"trainledger.cli.{name}") is None:
        pytest.skip("not there yet")
    command = root.load(name)
    assert command.name == name
    assert command.help


def test_an_unknown_verb_offers_the_nearest(capfd: pytest.CaptureFixture[str]) -> None:
    assert root.main(["estimat"]) == 2
    assert "estimate" in capfd.readouterr().err


def test_an_unknown_option_is_wrong_input(verb, capfd: pytest.CaptureFixture[str]) -> None:
    verb(lambda: None)
    assert root.main(["schema", "--no-such-option"]) == 2
    assert "--no-such-option" in capfd.readouterr().err


def test_wrong_input_lists_every_problem(verb, capfd: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("batch.sequence", "-1", "expected 1 or more"), Problem("modle", "unknown key", "see `model`")]
    verb(raising(InputError(problems)))
    assert root.main(["schema"]) == ExitCode.WRONG_INPUT
    shown = capfd.readouterr()
    assert shown.err.splitlines() == [str(problem) for problem in problems]
    assert shown.out == ""


def test_a_defect_is_named_without_a_traceback(verb, capfd: pytest.CaptureFixture[str]) -> None:
    verb(raising(ZeroDivisionError("division by zero")))
    assert root.main(["schema"]) == ExitCode.DEFECT
    error = capfd.readouterr().err
    assert "defect" in error
    assert "ZeroDivisionError" in error
    assert "Traceback" not in error


def test_debugging_shows_the_traceback(
    verb, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(root.DEBUG, "1")
    verb(raising(ZeroDivisionError("division by zero")))
    assert root.main(["schema"]) == ExitCode.DEFECT
    assert "Traceback" in capfd.readouterr().err


def test_a_verb_without_its_module_is_a_defect(verb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trainledger.cli.schema", None)
    assert root.main(["schema"]) == ExitCode.DEFECT


@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_a_verb_sets_the_exit_code(verb, code: int) -> None:
    verb(raising(root.typer.Exit(code)))
    assert root.main(["schema"]) == code


def test_a_verb_that_returns_has_answered(verb) -> None:
    verb(lambda: None)
    assert root.main(["schema"]) == ExitCode.ANSWERED


@pytest.mark.parametrize("error", [KeyboardInterrupt(), root.typer.Abort()])
def test_interrupted(verb, error: BaseException, capfd: pytest.CaptureFixture[str]) -> None:
    verb(raising(error))
    assert root.main(["schema"]) == ExitCode.INTERRUPTED
    assert capfd.readouterr().err == "Interrupted; no answer was written.\n"


def test_a_reader_that_leaves_is_no_noise() -> None:
    code = (
        "import sys, types\nfrom trainledger.cli import main as root\n"
        "module = types.ModuleType('trainledger.cli.schema')\n"
        "module.schema = lambda: print('x' * 1_000_000)\n"
        "sys.modules[module.__name__] = module\nsys.exit(root.main(['schema']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == ExitCode.BROKEN_PIPE


def test_help_to_a_reader_that_leaves_is_no_noise() -> None:
    process = subprocess.Popen([*PROGRAM, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(timeout=60) == ExitCode.BROKEN_PIPE


def test_an_unknown_shell_is_wrong_input() -> None:
    assert run("--show-completion", "tcl", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").returncode == 2


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_a_shell_after_an_option_that_takes_none(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert root.main([option, "nosuch"]) == ExitCode.WRONG_INPUT
    assert f"{option}: found 'nosuch' after it" in capfd.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    done = run("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert done.returncode == 0
    assert "_TRAINLEDGER_COMPLETE" in done.stdout


def test_completion_of_verbs() -> None:
    done = run(_TRAINLEDGER_COMPLETE="complete_bash", COMP_WORDS="trainledger e", COMP_CWORD="1")
    assert done.stdout.split() == ["estimate", "explain", "export"]


def test_completion_of_a_verb_s_options() -> None:
    if find_spec("trainledger.cli.models") is None:
        pytest.skip("not there yet")
    done = run(_TRAINLEDGER_COMPLETE="complete_bash", COMP_WORDS="trainledger models --se", COMP_CWORD="2")
    assert done.stdout.split() == ["--search"]


def test_a_full_disk_is_no_defect_of_the_program(
    verb, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "_hush", lambda code: code)
    verb(raising(OSError(28, "No space left on device")))
    assert root.main(["schema"]) == ExitCode.DEFECT
    said = capfd.readouterr().err
    assert "No space left on device" in said
    assert "report it" not in said


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("estimate", "plan.yaml", "--moment", "", "--rank="), ("--moment", "--rank")),
        (("estimate", "plan.yaml", "--gate="), ("--gate",)),
        (("review", "plan.yaml", "--device", ""), ("--device",)),
        (("import", "plan.yaml", "-o", ""), ("--output",)),
        (("estimate", "plan.yaml", "--set", ""), ("--set",)),
        (("models", "-s", ""), ("--search",)),
        (("estimate", ""), ("FILE",)),
        (("kv", ""), ("MODEL",)),
    ],
)
def test_an_empty_value_is_refused(
    arguments: tuple[str, ...], named: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert root.main(arguments) == ExitCode.WRONG_INPUT
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in told] == list(named)
    assert all("found an empty text; a value is needed." in line for line in told)
