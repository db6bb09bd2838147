"""Versions of packages: how they are compared, and the newest that these tables were checked against."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainledger.base.sources import Source

_DOTTED = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,8}))?(?![0-9A-Za-z]{6})")
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version of a package that the tables know."""

    package: str
    version: str
    source: Source


NEWEST: dict[str, Newest] = {
    row.package: row
    for row in (
        Newest("torch", "2.14.1", Source("PyTorch releases", "pypi: torch", "2026")),
        Newest("transformers", "5.24.0", Source("Transformers releases", "pypi: transformers", "2026-08")),
        Newest("accelerate", "1.15.0", Source("accelerate releases", "pypi: accelerate", "2026-08")),
        Newest("trl", "1.16.0", Source("TRL releases", "pypi: trl", "2026-10")),
        Newest("deepspeed", "0.19.8", Source("DeepSpeed releases", "pypi: deepspeed", "2026-10")),
    )
}


def parse_version(text: str) -> Version | None:
    """(2, 14, 1) of `2.14.1+cu130`; None where the text names a commit or a branch rather than a release."""
    match = _DOTTED.match(text.strip())
    return tuple(int(part) for part in match.groups(default="0")) if match else None


def at_least(text: str | None, since: str) -> bool:
    """Whether the version `text` is `since` or later. An unknown one (absent, a commit, a branch) counts as newest."""
    if not since:
        return True
    have, need = parse_version(text) if text else None, parse_version(since)
    return have is None or need is None or have >= need
