"""What of a script is read: branches whose conditions are known to be false are left out, texts that `read` puts into
variables and a script's own arguments are found, without running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainledger.importers.shell_words import Word

Line = tuple[str, int]
_HERE = re.compile(r"^\s*read\s+(?:-\w+\s+|''\s+|\"\"\s+)*([A-Za-z_]\w*)\s+<<-?\s*['\"]?(\w+)['\"]?\s*$")
_POSITION = re.compile(r"\$(?:\{([1-9])(?=[:}])|([1-9])(?!\w))")
_QUOTED = re.compile(r"^\s*(?:export\s+|local\s+)?[A-Za-z_]\w*\+?=\"")
_WHOLE = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\]\}")
_PIECES = re.compile(r";\s*(?=(?:then|else|elif|fi)\b)")
_FIRST = re.compile(r"\s*(if|elif|else|fi|then)\b\s*(.*)", re.S)
_NUMBERS = {"-eq": (0,), "-ne": (-1, 1), "-gt": (1,), "-ge": (0, 1), "-lt": (-1,), "-le": (-1, 0)}
OPENED, CLOSED = ("[", "[[", "test"), ("]", "]]")


def prepared(text: str) -> str:
    """The script with texts that `read` puts into a variable as assignments, `$1` as a variable ARG1; lines stay."""
    out: list[str] = []
    end = ""
    for line in text.split("\n"):
        match = _HERE.match(line)
        if end and line.strip() == end:
            out.append('"')
            end = ""
        elif end:
            out.append(line.replace('"', '\\"'))
        elif match:
            out.append(f'{match.group(1)}="')
            end = match.group(2)
        else:
            out.append(_own(line))
    return "\n".join(out)


def _own(line: str) -> str:
    """A line with the script's own arguments named, and arrays in a quoted value as one text."""
    named = _POSITION.sub(lambda one: f"${{ARG{one.group(1)}" if one.group(1) else f"${{ARG{one[0][1:]}}}", line)
    return _WHOLE.sub(r"${\1}", named) if _QUOTED.match(named) else named


@dataclass(slots=True)
class _Branch:
    """An open `if`: whether what is around it is read, whether a branch of it was surely taken (None: perhaps), and
    whether the branch that is open is read, and whether that is only as its condition is not known."""

    around: bool
    taken: bool | None
    read: bool
    perhaps: bool


def taken(lines: Iterable[Line], words: Callable[[str, int], list[Word]]) -> Iterator[tuple[str, int, bool]]:
    """The lines that are not in a branch whose condition is known to be false, each with whether it stands in one whose
    condition is not known. `words` expands a text with the
    variables that are known when it is asked."""
    open_: list[_Branch] = []
    for text, number in lines:
        line = _WHOLE.sub(r"${\1}", text) if _QUOTED.match(text) else text
        for piece in _PIECES.split(line) if _FIRST.match(line) else (line,):
            match = _FIRST.match(piece)
            word, rest = (match.group(1), match.group(1 + 1)) if match else ("", piece)
            rest = rest if word else piece
            if word in ("if", "elif", "else", "fi"):
                rest = _turn(open_, word, rest, number, words)
            if rest.strip() and all(branch.read for branch in open_):
                yield rest, number, any(branch.perhaps for branch in open_)


def _turn(open_: list[_Branch], word: str, rest: str, number: int, words: Callable[[str, int], list[Word]]) -> str:
    """Open, change or close a branch; what stands on its line besides."""
    if word == "if":
        around = all(branch.read for branch in open_)
        found = holds(words(rest, number)) if around else False
        open_.append(_Branch(around, found, around and found is not False, found is None))
        return ""
    if not open_:
        return rest if word == "else" else ""
    top = open_[-1]
    if word == "fi":
        open_.pop()
        return rest.lstrip("; ")
    if word == "else":
        top.read, top.perhaps = top.around and top.taken is not True, top.taken is None
        return rest
    found = holds(words(rest, number)) if top.around and top.taken is not True else False
    top.read = top.around and top.taken is not True and found is not False
    top.perhaps = None in (top.taken, found)
    top.taken = True if top.taken or found else None if None in (top.taken, found) else False
    return ""


def holds(words: Sequence[Word]) -> bool | None:
    """Whether tests in brackets, joined by && and ||, hold; None where that is not known."""
    value: bool | None = None
    joint = ""
    part: list[Word] = []
    for word in words:
        if word.mark:
            value = _joined(value, joint, _test(part)) if part else value
            joint, part = word.text if part else joint, []
        elif word.text != "then":
            part.append(word)
    return _joined(value, joint, _test(part)) if part else value


def _joined(left: bool | None, joint: str, right: bool | None) -> bool | None:
    if not joint or joint == ";":
        return right
    decided = joint == "||"
    if decided in (left, right):
        return decided
    return None if None in (left, right) else not decided


def _test(words: Sequence[Word]) -> bool | None:
    """One test in brackets; None for any other command, and where a word is not known."""
    texts = [word.text for word in words]
    turned = texts[0] == "!"
    texts, words = (texts[1:], words[1:]) if turned else (texts, words)
    if not texts or texts[0] not in OPENED or not all(word.known for word in words):
        return None
    inner = texts[1:-1] if texts[-1] in CLOSED else texts[1:] if texts[0] == "test" else []
    if inner[:1] == ["!"]:
        turned, inner = not turned, inner[1:]
    found = _compared(inner)
    return found if found is None else found is not turned


def _compared(inner: Sequence[str]) -> bool | None:
    """`-z a`, `-n a`, `a = b`, `a != b`, `a -gt b` and their like."""
    if len(inner) == len(("-z", "a")) and inner[0] in ("-z", "-n"):
        return (inner[0] == "-z") is not bool(inner[1])
    if len(inner) != len(("a", "=", "b")):
        return None
    left, sign, right = inner
    if sign in ("=", "==", "!="):
        return None if "*" in right else (left == right) is (sign != "!=")
    if sign in _NUMBERS and left.lstrip("-").isdigit() and right.lstrip("-").isdigit():
        return (int(left) > int(right)) - (int(left) < int(right)) in _NUMBERS[sign]
    return None
