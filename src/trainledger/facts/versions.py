"""Versions of packages: how they are compared, and the newest that these tables were checked against."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainledger.base.sources import Source

_DOTTED = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,8}))?(?![0-9A-Za-z]{6})")
_MAJOR = re.compile(r"v?(\d{1,3})")
# what may follow a release's numbers: a stage of it, a build, a word apart
_RELEASE = re.compile(
    r"v?\d+(?:\.\d+)*[-._]?(?:(?:a|b|c|rc|alpha|beta|pre|post|dev)[-._]?\d*)*(?=$|[\s+(_-]|\.\*)", re.I
)
_DAY = re.compile(r"\d{4}-\d{2}(?:-\d{2})?(?!\d)")
_COMMIT = re.compile(r"[0-9a-f]{6,40}(?![0-9A-Za-z])", re.I)
_BRANCH = re.compile(r"(?:main|master|dev|develop|nightly|trunk|head|latest|stable)(?:@[\w.-]+)?", re.I)
_TAG = re.compile(r"(?P<name>[A-Za-z][A-Za-z_-]*?)[ _-]?[rv]?\d+(?:\.\d+)+(?![A-Za-z])")
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
    match = _DOTTED.match(text.strip()) or _MAJOR.fullmatch(text.strip())
    if match and match.re is _MAJOR:
        return int(match[1]), 0, 0
    return tuple(int(part) for part in match.groups(default="0")) if match else None


def names_version(package: str, text: str) -> bool:
    """Whether a text names a version of a package: a release (2.14.1+cu130, 2.8.0a0), a day, a commit, a branch
    (main@2026-08-19) or a tag (core_r0.14.0); the package's own name before its number is no part of that.
    """
    text = text.strip()
    tag = _TAG.match(text)
    if tag is not None:
        return not tag["name"].lower().startswith(package.lower())
    return bool(_BRANCH.fullmatch(text) or any(form.match(text) for form in (_RELEASE, _DAY, _COMMIT)))


def at_least(text: str | None, since: str) -> bool:
    """Whether the version `text` is `since` or later. An unknown one (absent, a commit, a branch) counts as newest."""
    if not since:
        return True
    have, need = parse_version(text) if text else None, parse_version(since)
    return have is None or need is None or have >= need
