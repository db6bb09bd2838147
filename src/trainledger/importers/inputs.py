"""What was given: files, each read as far as its kind says (a mapping, a script, a folder), with lines."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import IO, Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_launch import COMMANDS, PYTHONS, WRAPPERS
from trainledger.facts.limits import PLAN_FILE
from trainledger.importers.document import Document
from trainledger.importers.files import read_text
from trainledger.importers.json_text import parse_json
from trainledger.importers.loose_json import parse_loose_json
from trainledger.importers.script import Script, parse_script
from trainledger.importers.toml_text import parse_toml
from trainledger.importers.yaml_text import parse_yaml

BINARY = "training_args.bin"
PICKLE = "a pickle, which runs code when it is read"
EXPORT = "Export it where it was made: torch.load('training_args.bin', weights_only=False).to_json_string()"
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=\S*")
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".cmd")
LAUNCHERS = frozenset((*WRAPPERS, *PYTHONS, *COMMANDS, "torchrun", "accelerate", "deepspeed"))
# How lines begin that lead up to a run.
BEFORE = ("export", "set", "source", "cd", "module", "conda", "ulimit", ".")
CODE = (".py", ".ipynb")
RUN_CODE = "Give the command that starts it, or its arguments in JSON or YAML: TrainingArguments.to_json_string()"


@dataclass(frozen=True, slots=True)
class Input:
    """One thing that was given. `name`: as given; `folder`: where relative paths in it start; `document`: of a mapping;
    `script`: of a shell script or command line; neither: a folder."""

    name: str
    folder: str
    document: Document | None = None
    script: Script | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The mapping; empty where it is none."""
        found = self.document.data if self.document else None
        return found if isinstance(found, dict) else {}


def read_input(source: str, env: dict[str, str] | None = None, stdin: IO[Any] | None = None) -> Input:
    """Read one file, folder, or standard input (`-`). `env`: variables that a script may take from outside.

    Nothing in a file is executed. Raises InputError for what cannot be read.
    """
    if not source:
        raise InputError([Problem("", "a file's name that is empty", "a path to a file is needed")])
    name = "<stdin>" if source == "-" else source
    if os.path.basename(source) == BINARY:
        raise InputError([Problem("", f"{name}: {PICKLE}", "a JSON or YAML file is needed", EXPORT)])
    if source.endswith(CODE):
        raise InputError([Problem("", f"{name}: a program", "programs are not run", RUN_CODE)])
    if source != "-" and os.path.isdir(source):
        return Input(name, source)
    text = read_text(source, PLAN_FILE, stdin=stdin)
    folder = "" if source == "-" else os.path.dirname(source)
    if not text.strip() and name.endswith((*SCRIPTS, ".toml")):
        raise InputError([Problem("", "an empty file", "a plan, or the files of a run, are needed", where=name)])
    if _is_script(name, text):
        return Input(name, folder, script=parse_script(text, name, env or {}))
    return Input(name, folder, document=parse_mapping(text, name))


def parse_mapping(text: str, name: str) -> Document:
    """The document of a text in JSON (with comments), TOML or YAML. Raises InputError when it is none."""
    if name.endswith((".json", ".jsonc", ".json5")):
        return parse_loose_json(text, name) if text.strip() else Document(None, {})
    if name.endswith(".toml"):
        return parse_toml(text, name)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return parse_json(text, name)
        except InputError as error:
            if any(problem.path for problem in error.problems):
                raise  # it is JSON, with keys given twice
            if text.lstrip()[:1] == "{":
                try:
                    return parse_loose_json(text, name)
                except InputError:
                    pass  # a flow mapping of YAML
    return parse_yaml(text, name)


def _is_script(name: str, text: str) -> bool:
    """Whether a text is a shell script or a command line, by its name or its first words."""
    if name.endswith(SCRIPTS) or text.startswith("#!"):
        return True
    if name.endswith((".yaml", ".yml", ".json", ".jsonc", ".json5", ".toml")):
        return False
    for line in text.splitlines():
        words = line.split()
        while words and (_ASSIGNED.fullmatch(words[0]) or words[0] == "$"):
            words.pop(0)
        if words and not words[0].startswith("#") and words[0] not in BEFORE:
            return os.path.basename(words[0]) in LAUNCHERS or words[0].endswith(SCRIPTS)
    return False
