"""Files of torchtune, torchtitan and LitGPT as people have them, and what is read from each, as text beside it.

`python -m tests.importers.native` writes the texts anew, for review.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainledger.base.problems import InputError
from trainledger.importers.document import Document
from trainledger.importers.inputs import read_input
from trainledger.importers.outside import merged, read_pieces

FOLDER = Path(__file__).resolve().parents[1] / "data" / "outside"
FORMATS = ("torchtune", "torchtitan", "litgpt")
GOLDEN = ".draft"


def cases(name: str) -> list[Path]:
    """The inputs of a format, without its broken ones."""
    return sorted(path for path in (FOLDER / name).iterdir() if path.is_file() and path.suffix != GOLDEN)


def broken(name: str) -> list[Path]:
    """Inputs of a format that are refused; the messages stand beside each."""
    return sorted(path for path in (FOLDER / name / "broken").iterdir() if path.suffix != ".txt")


def ids(paths: list[Path]) -> list[str]:
    """What a test of each is called."""
    return [f"{path.parent.name}-{path.name}" for path in paths]


def drafted(path: Path) -> str:
    """What is read: every key of the plan with its value and place, then what is unknown and what is not counted."""
    pieces = read_pieces([read_input(str(path))], {})
    document = merged(pieces)
    lines = [f"format: {', '.join(piece.format for piece in pieces)}", *_lines(document, document.data, ())]
    for piece in pieces:
        lines += [f"unknown: {one.path} at {one.where}; near {one.near or 'nothing'}" for one in piece.unknown]
        lines += [f"not counted: {one.path} at {one.where}; {one.direction}" for one in piece.uncounted]
    return "\n".join(lines).replace(f"{path.parent}/", "") + "\n"


def _lines(document: Document, data: Any, path: tuple[str, ...]) -> list[str]:
    if isinstance(data, dict) and data and path not in document.places:
        return [line for key in sorted(data) for line in _lines(document, data[key], (*path, key))]
    return [f"{'.'.join(path)} = {data!r} ({document.where(path)})"]


def messages(path: Path) -> str:
    """The problems that an input is refused with; empty when it is not."""
    try:
        pieces = read_pieces([read_input(str(path))], {})
        merged(pieces)
    except InputError as error:
        return "\n".join(str(problem) for problem in error.problems).replace(f"{path.parent}/", "") + "\n"
    return ""


if __name__ == "__main__":
    for one in FORMATS:
        for case in cases(one):
            case.with_name(case.name + GOLDEN).write_text(drafted(case), encoding="utf-8")
        for case in broken(one):
            case.with_name(case.name + ".txt").write_text(messages(case), encoding="utf-8")
