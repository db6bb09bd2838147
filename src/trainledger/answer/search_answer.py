"""What a search hands back, and how it is asked: candidates that were estimated, counts, published runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass

from trainledger.answer.search_exact import Exact, Job
from trainledger.answer.search_goal import Candidate, Goal
from trainledger.facts.roofline import ASSUMPTIONS, WORDS
from trainledger.facts.search_recipes import Published
from trainledger.facts.search_space import REACH

SOLVED = "stages by a solver"
Run = Callable[[Callable[[Job], Exact], Iterable[Job]], Iterable[Exact]]


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate that was estimated: its row and what it changes, seconds of its step by part, tokens per second and
    device, the exact estimate. `faster`: candidates not ruled out that take less time; `replicas`: data-parallel ranks;
    `solved`: whether a solver chose its stages."""

    row: int
    candidate: Candidate
    times: dict[str, float]
    step: float
    speed: float
    exact: Exact
    faster: int
    replicas: int
    solved: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many candidates there are; meshes that the plan's checks refused; candidates that can not fit, and besides
    those that can not be said to fit, by the bound; and that were estimated exactly. `stopped`: whether the limit of
    exact estimates ended the search."""

    candidates: int
    refused: int
    never: int
    out: int
    exact: int
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search stands: candidates, those still open, exact estimates so far, and the best plan so far."""

    candidates: int
    left: int
    exact: int
    best: Found | None


@dataclass(frozen=True, slots=True)
class Recipe:
    """A published run of this goal: its plan here (None where it is no candidate), of how many candidates that are not
    ruled out, and in what the run differed from the goal."""

    published: Published
    found: Found | None
    of: int
    differs: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of candidates that are faster."""
        return self.found.faster / max(self.of, 1) if self.found else 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The result: plans that fit from the fastest on, the front of memory against time, published recipes."""

    goal: Goal
    counts: Counts
    ranked: tuple[Found, ...]
    front: tuple[Found, ...]
    recipes: tuple[Recipe, ...]


@dataclass(frozen=True, slots=True)
class How:
    """How a search runs: how many plans to rank, at most how many exact estimates, how these are mapped, where they are
    kept, whom to tell, and who chooses uneven stages (none: nobody)."""

    top: int = REACH.shown
    limit: int = REACH.exact
    run: Run = map
    store: MutableMapping[str, Exact] | None = None
    report: Callable[[Progress], None] | None = None
    refine: Callable[[Goal, Candidate], tuple[Candidate, Exact] | None] | None = None
    together: int = 1


def key_of(one: Candidate) -> str:
    """A candidate as text, the same in every run."""
    degrees = " ".join(f"{name}={value}" for name, value in one.degrees().items())
    return f"{one.strategy}/{one.shard} {degrees} {one.policy.name}/{one.layers} {one.layout}"


def by_time(one: Found) -> tuple[float, int]:
    """Sorts plans by their time, equal ones by what they hold."""
    return one.step, one.exact.device.expected


def lower(ordered: Sequence[Found]) -> list[Found]:
    """Of plans in the order of their times those that hold less than all before them, by a share worth showing."""
    front: list[Found] = []
    for one in ordered:
        if not front or one.exact.device.expected < front[-1].exact.device.expected * (1 - REACH.front):
            front.append(one)
    return front


def assumptions() -> tuple[str, ...]:
    """What the times take for granted, each with its source, and what they leave out."""
    given = (f"{one.says.format(one.value)} [{one.basis}: {one.source}]" for one in ASSUMPTIONS)
    return (*given, *WORDS.lacks)
