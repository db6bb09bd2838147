"""Files that a verb writes: never over one that is there, unless that is asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trainledger.base.problems import InputError, Problem

OUTPUT_HELP = "Write to this file instead of standard output."
FORCE_HELP = "Write over a file that is there."


def check_output(path: str, force: bool) -> None:
    """Raise InputError where a file is there already and is not to be written over, its folder is missing, or nothing
    may be written there. What is no file, such as /dev/stdout, has nothing to lose."""
    target = Path(path)
    if not path:
        return
    if target.is_dir() or not target.parent.is_dir():
        found = f"{path} is a folder" if target.is_dir() else f"{target.parent}: no such folder"
        raise InputError([Problem("-o", found, "a file in a folder that is there is needed")])
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InputError([Problem("-o", f"{path}: permission denied", "a file that can be written is needed")])
    if target.is_file() and not force:
        raise InputError([Problem("-o", f"{path} is there already", "it is not written over", "Add --force.")])


def check_outputs(folder: str, names: Sequence[str], force: bool) -> None:
    """Raise InputError where one of several files is there already and is not to be written over, or where their
    folder is missing."""
    base = Path(folder or ".")
    if not base.is_dir():
        raise InputError([Problem("-o", f"{folder}: no such folder", "a file in a folder that is there is needed")])
    there = [str(Path(base, name)) for name in names if Path(base, name).is_file()]
    folders = [str(Path(base, name)) for name in names if Path(base, name).is_dir()]
    if folders:
        raise InputError([Problem("-o", f"{one} is a folder", "a file is needed") for one in folders])
    if there and not force:
        raise InputError(
            [Problem("-o", f"{one} is there already", "it is not written over", "Add --force.") for one in there]
        )


def write_outputs(folder: str, files: Sequence[tuple[str, str]]) -> None:
    """Write several files, by name, into a folder. Raises InputError where one cannot be written."""
    for name, text in files:
        path = Path(folder or ".", name)
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                [Problem("-o", f"{path}: {error.strerror}", "a file that can be written is needed")]
            ) from None


def write_output(path: str, text: str) -> None:
    """Write the text to the file, or print it where no file is named. Raises InputError where it cannot be written."""
    if not path:
        print(text)
        return
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError([Problem("-o", f"{path}: {error.strerror}", "a file that can be written is needed")]) from None
