"""The days of torchtitan's history: after which of them a release or a commit comes, what PyTorch's main branch was
then, and when documents that name neither were written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from trainledger.base.sources import Source
from trainledger.facts.torchtitan_commits import DIGITS, ERAS
from trainledger.facts.versions import at_least, parse_version

NEWEST = "9999"


def _read(what: str, commit: str) -> Source:
    return Source("torchtitan", what, commit)


@dataclass(frozen=True, slots=True)
class Release:
    """The day from which on a release, or a commit beside the main branch, has the main branch's changes."""

    names: tuple[str, ...]
    day: str
    source: Source


RELEASES = (
    Release(("0.0.2",), "2025-03-12", _read("assets/version.txt; the middle of the days it stood there", "b0a80df20")),
    Release(("0.1.0",), "2025-06-05", _read("assets/version.txt", "b461ea82c")),
    Release(("0.2.0",), "2025-10-17", _read("assets/version.txt", "29624e37f")),
    Release(("0.2.1",), "2025-12-26", _read("assets/version.txt", "64b5e15fa")),
    Release(("0.2.2",), "2026-02-20", _read("assets/version.txt", "73a0e6979")),
    Release(("2cf57a",), "2024-06-08", _read("a branch", "2cf57abe736a")),
    Release(("05ac4d",), "2024-06-12", _read("a branch", "05ac4dc49350")),
    Release(("466586",), "2024-10-22", _read("a branch that compiles the loss", "46658697571f")),
    Release(("9dec37",), "2024-12-26", _read("a branch", "9dec370ad")),
    Release(("c14ab7",), "2025-03-24", _read("a branch", "c14ab776ce87")),
    Release(("d0cdb1",), "2025-08-22", _read("a branch", "d0cdb1433ad1")),
    Release(("54310d",), "2025-10-16", _read("a branch", "54310d57e5b9")),
    Release(("00c95c",), "2025-09-17", _read("a branch", "00c95c0f5199")),
)
_DAYS = {digits: day for day, commits in ERAS.items() for digits in commits.split()}
_DAYS |= {name: one.day for one in RELEASES for name in one.names}


def day_of(version: str) -> str:
    """The day of torchtitan's history after which a release, a commit, a nightly build or a day comes; the newest where
    it is not known."""
    text = version.strip().removeprefix("v")
    return _DAYS.get(text) or dated(text) or _DAYS.get(text[:DIGITS]) or NEWEST


def known(version: str) -> bool:
    """Whether it is a release or a commit of the table."""
    return day_of(version) != NEWEST


@dataclass(frozen=True, slots=True)
class Nightlies:
    """PyTorch's main branch builds this release from this day on, when the one before is cut."""

    release: str
    since: str
    source: Source


_CUTS = Source("PyTorch releases, days of branch cuts", "github.com/pytorch/pytorch, RELEASE.md", "2026-08")
NIGHTLIES = tuple(
    Nightlies(release, since, _CUTS)
    for release, since in (
        ("2.14", "2026-06-15"),
        ("2.13", "2026-04-13"),
        ("2.12", "2026-02-09"),
        ("2.11", "2025-12-08"),
        ("2.10", "2025-09-08"),
        ("2.9", "2025-06-30"),
        ("2.8", "2025-03-17"),
        ("2.7", "2024-12-16"),
        ("2.6", "2024-09-16"),
        ("2.5", "2024-06-24"),
        ("2.4", "2024-03-25"),
        ("2.3", ""),
    )
)
_DAY = re.compile(r"(?<!\d)(20\d\d)-(\d\d)-(\d\d)(?!\d)|\.dev(20\d\d)(\d\d)(\d\d)")
_MAIN = re.compile(r"(\d+\.\d+)\.0(?:a|\.dev)")


def dated(text: str) -> str:
    """The first day that a text names, as `2025-02-18` or as a nightly build's `.dev20250218`; empty for none."""
    match = _DAY.search(text)
    return "-".join(part for part in match.groups() if part) if match else ""


def torch_of(version: str) -> str:
    """The release that PyTorch's main branch was on when a version of torchtitan was made."""
    return torch_at(day_of(version))


def torch_at(day: str) -> str:
    """The release that PyTorch's main branch was on that day."""
    return next(row.release for row in NIGHTLIES if day >= row.since)


def dated_torch(text: str) -> str:
    """The release of a build named by a commit with its day, as `1963fc8 (2024-12-23)`; empty for other texts."""
    return torch_at(dated(text)) if dated(text) and not _MAIN.match(text) else ""


def left_on(release: str) -> str:
    """The day on which PyTorch's main branch left a release's number; empty where it has not or never had it."""
    number = ".".join(release.split(".")[: len(("major", "minor"))])
    cuts = {older.release: newer.since for newer, older in pairwise(NIGHTLIES)}
    return cuts.get(number, "")


def torchtitan_of(release: str) -> str | None:
    """The day whose torchtitan a plan means that names PyTorch's release alone; None where it is the newest."""
    return left_on(release) or None


def last_day(build: str) -> str:
    """The last day that a build of PyTorch's main branch, as `2.8.0a0` or `2.9.0.dev20250811`, can be of; empty for
    releases, which newer code of torchtitan may run on."""
    match = _MAIN.match(build)
    return left_on(match.group(1)) if match else ""


def changed(release: str, day: str, torch: str, torchtitan: str) -> bool:
    """Whether PyTorch has a change that came with a release and into its main branch on a day: by its own release, by
    the day of a nightly build, or under the main branch (two numbers, or none) by the day of a version of torchtitan.
    """
    version, made = parse_version(torch) if torch else None, dated(torch) or day_of(torchtitan)
    released = version is not None and torch.count(".") > 1 and not dated(torch)
    return at_least(torch or None, release) if released or made == NEWEST else made >= day


@dataclass(frozen=True, slots=True)
class Document:
    """A document that prints runs of torchtitan without its release, and the day on which they were put into it."""

    repo: str
    path: str
    day: str
    source: Source


DOCUMENTS = (
    Document(
        "pytorch/ao",
        "torchao/prototype/float8nocompile/README.md",
        "2025-02-11",
        Source("torchao", "git log of the README, performance benchmarks (#1693)", "d99785c0f"),
    ),
)
