"""Reading text from files and standard input: bounded, in UTF-8, and never a traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Any

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.units import format_size
from trainledger.facts.limits import Limit


def read_text(source: str, limit: Limit, key: str = "", stdin: IO[Any] | None = None) -> str:
    """The text of a file, or of standard input when `source` is `-`; at most `limit` bytes.

    `key` is the plan's key that named the file, if any. Raises InputError when the file is missing, a folder,
    unreadable, too large, or not UTF-8.
    """
    try:
        raw = _stdin(stdin, limit) if source == "-" else _file(source, limit)
    except FileNotFoundError:
        if os.path.islink(source):
            raise _refused(key, source, "a link to a file that is not there", "a path to a file that exists") from None
        raise _refused(key, source, "no such file", "a path to a file that exists", _near(source)) from None
    except IsADirectoryError:
        raise _refused(key, source, "a folder", "a path to a file", "Name the file in it.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "cannot be read"
        raise _refused(key, source, reason[:1].lower() + reason[1:], "a path to a file that can be read") from None
    if raw is None or len(raw) > limit.value:
        raise _refused(key, source, "too large", f"a file of at most {format_size(limit.value, 'auto')}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _refused(key, source, "not text in UTF-8", "a text file in UTF-8") from None


def _file(source: str, limit: Limit) -> bytes | None:
    path = Path(source)
    if path.stat().st_size > limit.value:
        return None
    with path.open("rb") as stream:
        return stream.read(limit.value + 1)


def _stdin(stdin: IO[Any] | None, limit: Limit) -> bytes:
    stream = stdin if stdin is not None else getattr(sys.stdin, "buffer", sys.stdin)
    if stream is None:
        raise ValueError("there is no standard input")
    data = stream.read(limit.value + 1)
    return data if isinstance(data, bytes) else str(data).encode("utf-8", "surrogateescape")


def _near(source: str) -> str:
    folder, name = os.path.split(source)
    try:
        near = nearest(name, sorted(os.listdir(folder or ".")))
    except (OSError, ValueError):
        return ""
    return f"Did you mean {os.path.join(folder, near)}?" if near else ""


def _refused(key: str, source: str, found: str, allowed: str, fix: str = "") -> InputError:
    name = "standard input" if source == "-" else ascii(source)[1:-1] if not source.isprintable() else source
    return InputError([Problem(key, f"{name}: {found}", allowed, fix)])
