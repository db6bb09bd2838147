"""Sets of ranks as compact runs: the first, the last, and the stride between neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """Ranks `first`, `first` + `stride`, ... up to `last`, both included; the stride of a single rank is 1."""

    first: int
    last: int
    stride: int = 1

    @property
    def count(self) -> int:
        """How many ranks there are."""
        return (self.last - self.first) // self.stride + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1, self.stride))

    def __contains__(self, rank: int) -> bool:
        return self.first <= rank <= self.last and (rank - self.first) % self.stride == 0

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        step = f" step {self.stride}" if self.stride > 1 else ""
        return f"{self.first}-{self.last}{step}"


Ranks = tuple[Run, ...]


def run_of(rank: int) -> Run:
    """One rank."""
    return Run(rank, rank)


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The same ranks in order and in fewer runs, where one continues another. The runs given share no rank."""
    out: list[Run] = []
    for run in sorted(runs):
        last = out[-1] if out else None
        longer = _continued(last, run) if last is not None else None
        if longer is None:
            out.append(run)
        else:
            out[-1] = longer
    return tuple(out)


def _continued(run: Run, after: Run) -> Run | None:
    """Both as one run, or None: the second begins one stride behind the end of the first and has its stride."""
    gap = after.first - run.last
    if gap <= 0:
        return None
    strides = {one.stride for one in (run, after) if one.count > 1} or {gap}
    return Run(run.first, after.last, gap) if strides == {gap} else None
