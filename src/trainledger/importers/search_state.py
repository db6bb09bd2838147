"""The state of a search in a file: one exact estimate a line, so that a search that was stopped goes on from there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from trainledger import __version__
from trainledger.answer.bands import Band
from trainledger.answer.search_exact import Exact
from trainledger.answer.search_goal import Goal
from trainledger.base.problems import InputError, Problem

OPTION = "--state"
HEAD = "search"


class State(MutableMapping[str, Exact]):
    """Estimates by candidate. Each is written as it comes; a line that was cut off is dropped when the file is read."""

    def __init__(self, path: str, goal: Goal, force: bool = False) -> None:
        """Read the file, or begin one. Raises InputError for a file that holds something else, unless `force`."""
        self.path, self._found = Path(path), dict[str, Exact]()
        mark = digest(goal)
        size = 0 if force else self._read(mark)
        try:
            self._file: IO[str] = open(self.path, "r+" if size else "w", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise InputError(
                [Problem(OPTION, f"{path}: {error.strerror}", "a file that can be written is needed")]
            ) from None
        if size:
            self._file.seek(size)
            self._file.truncate()
        else:
            self._write({HEAD: mark, "version": __version__})

    def _read(self, mark: str) -> int:
        """What the file holds; its bytes up to the last whole line, 0 where there is no file."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise InputError([Problem(OPTION, f"{self.path}: {error.strerror}", "a file is needed")]) from None
        whole = raw[: raw.rfind(b"\n") + 1]
        lines = whole.splitlines()
        head = _loaded(lines[0]) if lines else {}
        if raw and head.get(HEAD) != mark:
            found = "the state of another search" if HEAD in head else "no state of a search"
            raise InputError([Problem(OPTION, f"{self.path} is {found}", "it is not written over", "Add --force.")])
        for line in lines[1:]:
            made = _loaded(line)
            if "key" in made:
                self._found[str(made["key"])] = exact_from(made["exact"])
        return len(whole)

    def _write(self, data: dict[str, Any]) -> None:
        self._file.write(json.dumps(data) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __setitem__(self, key: str, value: Exact) -> None:
        self._found[key] = value
        self._write({"key": key, "exact": asdict(value)})

    def __getitem__(self, key: str) -> Exact:
        return self._found[key]

    def __delitem__(self, key: str) -> None:
        raise TypeError("what was estimated stays")

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def exact_from(data: dict[str, Any]) -> Exact:
    """An estimate as it was written."""
    return Exact(**{**data, "device": Band(**data["device"])})


def digest(goal: Goal) -> str:
    """A mark of a goal and of this version: estimates of another goal or version are none of this one's."""
    policies = [one.name for one in goal.policies]
    asked = [goal.template, goal.devices, goal.device.name, goal.global_batch, goal.sequence, policies, __version__]
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()


def _loaded(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
