"""A shell script read, never run: variables that it sets, and the commands in it as words with their lines.

What only a shell could know (`$(...)`, variables that nothing sets) is left as text and listed as not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainledger.importers.shell_flow import prepared, taken
from trainledger.importers.shell_words import BEFORE, CONTINUED, Lexer, Word

_ASSIGN = re.compile(r"(?:(?:export|local|declare|readonly|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)=(.*)", re.S)
_SBATCH = re.compile(r"--?([A-Za-z][\w-]*)[= ]+(\S+)")
CONTROL = frozenset(
    "if elif fi for while until done case esac } ) set cd echo source mkdir module conda ulimit unset exit return trap "
    "sleep wait pip [ [[ test printf ls rm cp cat tee nvidia-smi . function shift true false : wandb".split()
)
PROMPT = "$ "  # as a pasted command has it
OPENING, CLOSING = "case", "esac"  # of branches whose conditions are not read
FUNCTION = ("()", "(){")  # how a name ends whose commands follow
EVAL = "eval"
PREFIXES = ("export", "local", "readonly", "declare", "env", "nohup", "exec", "time", "sudo", EVAL, "-x")
# What a batch system says in comments, and the variables by which a script then finds it.
SLURM = {
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus-per-node": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "gres": ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its words, and the variables that were set before it or on its line."""

    words: tuple[Word, ...]
    env: Mapping[str, Word]

    @property
    def texts(self) -> tuple[str, ...]:
        """Its words as plain text."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Script:
    """The commands of a script in order; `env`: all variables it sets; `name`: its file; `doubts`: variables that a
    branch changes, with the value that is taken."""

    name: str
    commands: tuple[Command, ...]
    env: Mapping[str, Word]
    doubts: Mapping[str, Word] = field(default_factory=dict)


_SHELL_READS = re.compile(r"(?:^|[\s;|&/])(?:ba|z)?sh(?:\s+-\S+)*\s*<<")


def parse_script(text: str, name: str, env: Mapping[str, str]) -> Script:
    """Read a script. `env`: variables given from outside, which a script's own assignments replace."""
    given = {key: Word(value, "--env") for key, value in env.items()}
    reader = _Shell(name, given)
    reader.env = {**_slurm(text, name), **given}
    for line, number, perhaps in taken(_logical(prepared(text)), reader.words):
        reader.perhaps = perhaps
        reader.line(line, number)
    return Script(name, tuple(reader.commands), dict(reader.env), dict(reader.doubts))


def _slurm(text: str, name: str) -> dict[str, Word]:
    """The variables that a batch system sets from the script's `#SBATCH` lines."""
    found: dict[str, Word] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for option, value in _SBATCH.findall(line) if line.startswith("#SBATCH") else ():
            for variable in SLURM.get(option, ()):
                found[variable] = Word(value.rpartition(":")[2], f"{name}:{number}")
    return found


def _logical(text: str) -> Iterator[tuple[str, int]]:
    """Lines with continuations, open quotes and open array brackets joined, and the number of their first line."""
    held, start, here, run = "", 0, "", False
    for number, raw in enumerate(text.splitlines(), 1):
        ends = bool(here) and raw.strip() == here
        if here and (ends or not run):  # a here-document is skipped, but where a shell runs it
            here = "" if ends else here
            continue
        line = held + raw if held else raw
        start = start if held else number
        stripped = line.rstrip()
        if stripped.endswith("\\") and not stripped.endswith("\\\\"):
            held = stripped[:-1] + CONTINUED
            continue
        if _open(line):
            held = line + "\n"
            continue
        if match := re.search(r"<<-?\s*['\"]?(\w+)['\"]?", line):
            here, run = match.group(1), bool(_SHELL_READS.search(line))
        held = ""
        yield line, start
    if held:
        yield held, start


def _open(line: str) -> bool:
    """Whether a quote or an array's bracket is still open at the end of a line."""
    quote, depth, at = "", 0, 0
    while at < len(line):
        char = line[at]
        if char == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#" and (at == 0 or line[at - 1].isspace()):
            end = line.find("\n", at)
            at = len(line) if end < 0 else end
            continue
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        at += 1
    return bool(quote) or depth > 0


class _Shell:
    """The state of a script as it is read."""

    def __init__(self, name: str, env: dict[str, Word]) -> None:
        self.name, self.env, self.outside = name, env, frozenset(env)
        self.depth, self.doubts = 0, dict[str, Word]()
        self.number = 1  # of the line that is read
        self.perhaps = False  # whether the line stands in a branch that may be taken
        self.arrays: dict[str, list[Word]] = {}
        self.commands: list[Command] = []

    def place(self, number: int) -> str:
        return f"{self.name}:{number}"

    def line(self, line: str, number: int) -> None:
        stripped, self.number = line.strip().removeprefix(PROMPT), number
        if not stripped or stripped.startswith("#"):
            return
        match = _ASSIGN.fullmatch(stripped)
        if match and match.group(3).startswith("("):
            self._array(match, number)
            return
        self._commands(Lexer(self, stripped, number, commands=True))

    def _array(self, match: re.Match[str], number: int) -> None:
        key, more, value = match.groups()
        inner = value.strip()
        inner = inner[1 : inner.rfind(")")] if ")" in inner else inner[1:]
        words = self.words(inner, number)
        self._doubt(key, Word(value, self.place(number)))
        self.arrays[key] = [*(self.arrays.get(key, []) if more else ()), *words]

    def _commands(self, words: Iterable[Word]) -> None:
        current: list[Word] = []
        for word in words:
            if word.mark:
                self._command(current)
                current = []
            else:
                current.append(word)
        self._command(current)

    def _command(self, words: list[Word]) -> None:
        if words:
            self.depth += words[0].text == OPENING
            self.depth -= words[0].text == CLOSING and self.depth > 0
        own: dict[str, Word] = {}
        rest = list(words)
        while rest:
            text = rest[0].text
            if text in PREFIXES or text in BEFORE or text.endswith(FUNCTION):
                rest.pop(0)
                if text == EVAL and len(rest) == 1:  # one text, which is a command itself
                    self._commands(Lexer(self, rest[0].text, self.number, commands=True))
                    return
                continue
            match = _ASSIGN.fullmatch(text)
            if not match:
                break
            key, more, value = match.groups()
            before = self.env[key].text if more and key in self.env else ""
            own[key] = Word(before + value, rest[0].where, rest[0].known)
            rest.pop(0)
        if not rest:
            for key, word in own.items():
                self._assign(key, word)
            return
        if rest[0].text in CONTROL:
            return
        self.commands.append(Command(tuple(rest), {**self.env, **own}))

    def _assign(self, key: str, word: Word) -> None:
        self._doubt(key, word)
        if self.doubtful and key in self.outside:
            return  # what is given from outside stands for the branch that is taken
        self.env[key] = word
        self.arrays.pop(key, None)

    @property
    def doubtful(self) -> bool:
        """Whether what is read may never run."""
        return self.perhaps or self.depth > 0

    def _doubt(self, key: str, word: Word) -> None:
        """Note a value that a branch changes whose condition is not known: it is taken."""
        before = self.value(key)
        if self.doubtful and before is not None and before.text != word.text and key not in self.outside:
            self.doubts[key] = word

    def words(self, text: str, number: int) -> list[Word]:
        """The words of a text, expanded; line ends count on."""
        return list(Lexer(self, text, number))

    def value(self, name: str) -> Word | None:
        """What a variable holds."""
        if name in self.arrays:
            words = self.arrays[name]
            return Word(" ".join(word.text for word in words), words[0].where if words else "")
        return self.env.get(name)
