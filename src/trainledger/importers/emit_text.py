"""Lines of an outside file as its text: YAML, TOML, JSON, a launch script; each key with the plan's key beside it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from trainledger.importers.emit import ENV, LAUNCH, Line, nested
from trainledger.plan.yaml_text import yaml_lines


def yaml_file(lines: Iterable[Line], head: Iterable[str]) -> str:
    """A YAML file: nested mappings of dotted keys, a comment with the plan's key at each."""
    kept = list(lines)
    origins = {line.key: line.path for line in kept}
    body = yaml_lines(nested((line.key, line.value) for line in kept), yaml_value, origins)
    return "\n".join([*(f"# {text}" for text in head), *body]) + "\n"


def yaml_value(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=sys.maxsize, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def toml_file(lines: Iterable[Line], head: Iterable[str]) -> str:
    """A TOML file: a table for what stands before a key's last dot."""
    tables: dict[str, list[str]] = {}
    for line in lines:
        table, _, key = line.key.rpartition(".")
        comment = f"  # {line.path}" if line.path else ""
        tables.setdefault(table, []).append(f"{key} = {toml_value(line.value)}{comment}")
    body = (text for table, keys in tables.items() for text in ("", f"[{table}]", *keys))
    return "\n".join([*(f"# {text}" for text in head), *body]) + "\n"


def toml_value(value: Any) -> str:
    """A value of TOML: texts, numbers, truth values and lists are written as JSON has them."""
    return json.dumps(value, ensure_ascii=False)


def json_file(data: Mapping[str, Any]) -> str:
    """A JSON file, which has no comments."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def script(lines: Iterable[Line], command: str, head: Iterable[str], bare: bool = False) -> str:
    """A launch script: variables, the program's arguments in an array, the command that starts it.

    `bare`: what is true is an argument's name alone, and what is false is left out.
    """
    kept = list(lines)
    out = ["#!/bin/bash", *(f"# {text}" for text in head)]
    for line in kept:
        if line.part == ENV:
            out.append(f"export {line.key}={shlex.quote(shell_value(line.value))}  # {line.path}")
    arguments = [line for line in kept if line.part not in (ENV, LAUNCH)]
    if arguments:
        out += ["ARGS=(", *(f"  {_argument(line, bare)}" for line in arguments if not bare or line.value is not False)]
        out += [")", f'{command} "${{ARGS[@]}}"']
    else:
        out.append(command)
    return "\n".join(out) + "\n"


def _argument(line: Line, bare: bool) -> str:
    comment = f"  # {line.path}" if line.path else ""
    name = line.key if line.key.startswith("-") else f"--{line.key}"
    if bare and line.value is True:
        return f"{name}{comment}"
    values = line.value if isinstance(line.value, list | tuple) else [line.value]
    words = " ".join(shlex.quote(shell_value(one)) for one in values)
    return f"{name} {words}{comment}"


def shell_value(value: Any) -> str:
    """A value as a command line has it: mappings as JSON, truth values in Python's words."""
    return json.dumps(value) if isinstance(value, dict) else str(value)
