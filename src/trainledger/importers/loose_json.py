"""JSON as people write it: comments and trailing commas are blanked out, so that lines stay where they are."""

from __future__ import annotations

from trainledger.importers.document import Document
from trainledger.importers.json_text import parse_json


def parse_loose_json(text: str, name: str) -> Document:
    """The document of a JSON text with `//`, `#` and `/* */` comments and trailing commas. Raises InputError as
    `parse_json` does."""
    return parse_json(without_commas(without_comments(text)), name)


def without_comments(text: str) -> str:
    """The text with every comment outside of strings replaced by spaces; line ends stay."""
    out, at = list(text), 0
    while at < len(text):
        if text[at] == '"':
            at = _string_end(text, at)
            continue
        end = at
        if text[at] == "#" or text.startswith("//", at):
            end = _until(text, "\n", at)
        elif text.startswith("/*", at):
            end = _until(text, "*/", at + len("/*"), inclusive=True)
        for place in range(at, end):
            if out[place] != "\n":
                out[place] = " "
        at = max(end, at + 1)
    return "".join(out)


def without_commas(text: str) -> str:
    """The text with every comma before a closing bracket replaced by a space."""
    out, at = list(text), 0
    while at < len(text):
        if text[at] == '"':
            at = _string_end(text, at)
            continue
        if text[at] == "," and text[at + 1 :].lstrip()[:1] in ("}", "]"):
            out[at] = " "
        at += 1
    return "".join(out)


def _string_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and text[at] not in ('"', "\n"):
        at += len("\\x") if text[at] == "\\" else 1
    return at + 1


def _until(text: str, mark: str, at: int, inclusive: bool = False) -> int:
    end = text.find(mark, at)
    if end < 0:
        return len(text)
    return end + len(mark) if inclusive else end
