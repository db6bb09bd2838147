"""Estimates held against what runs measured: errors by group and metric, and how often the verdict was wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainledger.answer.estimate import Estimate
from trainledger.base.problems import InputError, RefusedError, TraceError
from trainledger.facts.accuracy import INPUTS, TAIL

METRICS = ("allocated_peak", "active_peak", "reserved_peak", "device_used")
OPERATORS = "operators"
FITS, TIGHT, TOO_LARGE = "fits", "tight", "does-not-fit"
RAN, FAILED = "fits", "oom"  # how a run went


@dataclass(frozen=True, slots=True)
class Reading:
    """One number that a run showed: bytes, how coarsely printed, and of which rank."""

    metric: str
    size: int
    rounding: int
    rank: str


@dataclass(frozen=True, slots=True)
class Case:
    """A run record to estimate: `make` gives its estimate or raises InputError. `outcome`: fits or oom; `assumed`:
    the outcome is not stated by the source; `inputs`: nor are these keys of the plan."""

    id: str
    group: str
    readings: tuple[Reading, ...]
    outcome: str
    assumed: bool
    make: Callable[[], Estimate]
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """One operator by itself: `make` gives its peak in bytes, or None where the program lacks the operator."""

    id: str
    reading: Reading
    make: Callable[[], int | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One number compared: expected and measured bytes, the error as a fraction of the measured; or why it failed;
    keys of the plan that the source does not state."""

    id: str
    group: str
    metric: str
    rank: str
    expected: int | None
    measured: int
    error: float
    failed: str
    inputs: tuple[str, ...] = ()

    @property
    def stated(self) -> bool:
        """Whether the source states what moves a plan's size most."""
        return not any(name in INPUTS for name in self.inputs)


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of a group's metric as fractions: median and 95th percentile of |error|, the largest, signed mean."""

    n: int
    failed: int
    median: float
    p95: float
    max: float
    bias: float


Scores = dict[str, dict[str, Score]]  # by group and metric


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Outcomes against what happened: a false fit ran out of memory, a false alarm did not."""

    n: int
    false_fits: int
    false_alarms: int
    tight: int
    assumed: int
    failed: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a run went (`fits` or `oom`), and what the allocator's replay at its device's capacity said."""

    id: str
    measured: str
    said: str

    @property
    def agrees(self) -> bool:
        """Whether the replay said what happened."""
        return self.said == self.measured


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Everything compared; `skipped`: ids of operators that the program lacks."""

    rows: tuple[Row, ...]
    verdicts: Verdicts
    skipped: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()  # ids of runs that this engine does not take, with the reason: in no score
    replays: tuple[Replayed, ...] = ()

    @property
    def agreed(self) -> int:
        """How many replays said what happened."""
        return sum(one.agrees for one in self.replays)

    @property
    def groups(self) -> Scores:
        """Scores by group and metric, in order of appearance."""
        return grouped(self.rows)

    def apart(self, stated: bool) -> Scores:
        """Of groups with rows whose sequence, rank or adapter dtype the source does not state: scores of these rows, or
        with `stated` of the others."""
        mixed = {row.group for row in self.rows if not row.stated}
        return grouped([row for row in self.rows if row.group in mixed and row.stated is stated])

    def worst(self, count: int, estimated: bool = False) -> tuple[Row, ...]:
        """The rows with the largest errors; with `estimated`, of those that did not fail."""
        rows = [row for row in self.rows if not (estimated and row.failed)]
        return tuple(sorted(rows, key=lambda row: -abs(row.error))[:count])

    def refusals(self) -> tuple[tuple[str, str, int], ...]:
        """Why records failed: group, the first reason, and how many rows."""
        reasons = Counter((row.group, row.failed.partition(";")[0]) for row in self.rows if row.failed)
        return tuple((group, reason, count) for (group, reason), count in reasons.items())


def grouped(rows: Iterable[Row]) -> Scores:
    """Scores by group and metric, in order of appearance."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row.group, {}).setdefault(row.metric, []).append(row)
    return {group: {metric: score(rows) for metric, rows in metrics.items()} for group, metrics in found.items()}


def score(rows: Sequence[Row]) -> Score:
    """The score of rows of one group and metric. A failed row counts as an error of 1, and not in the bias."""
    sizes = np.array([abs(row.error) for row in rows])
    whole = [row.error for row in rows if not row.failed]
    return Score(
        n=len(rows),
        failed=sum(bool(row.failed) for row in rows),
        median=float(np.median(sizes)),
        p95=float(np.percentile(sizes, TAIL.percentile)),
        max=float(sizes.max()),
        bias=float(np.mean(whole)) if whole else 0.0,
    )


def error_of(expected: int, reading: Reading) -> float:
    """(expected - measured) / measured; 0 where the two differ by no more than half of the rounding."""
    if abs(expected - reading.size) + abs(expected - reading.size) <= reading.rounding:
        return 0.0
    return (expected - reading.size) / reading.size


def expected_of(estimate: Estimate, metric: str) -> int:
    """The expected bytes of a metric over whole steps. What nvidia-smi shows lies above reserved as at the peak."""
    steps = estimate.steps
    amounts: Mapping[str, int] = {
        "allocated_peak": steps.allocated.expected,
        "active_peak": steps.active.expected,
        "reserved_peak": steps.reserved.expected,
        "device_used": steps.reserved.expected + estimate.device.expected - estimate.peak.reserved.expected,
    }
    return amounts[metric]


def accuracy(
    cases: Iterable[Case], report: Callable[[str], None] = lambda name: None, operators: Sequence[OperatorCase] = ()
) -> Accuracy:
    """Estimate every case and compare. `report` is told each case's id as it is done."""
    rows: list[Row] = []
    outcomes: list[tuple[Case, str | None]] = []
    replays: list[Replayed] = []
    refused: list[str] = []
    for case in cases:
        try:
            made, failed = _made(case)
        except RefusedError as error:
            refused.append(f"{case.id}: {'; '.join(str(problem) for problem in error.problems)}")
            report(case.id)
            continue
        rows += [_row(case, reading, made, failed) for reading in case.readings]
        outcomes.append((case, made.verdict.outcome if made else None))
        replays += _replayed(case, made)
        report(case.id)
    skipped: list[str] = []
    for one in operators:
        peak = one.make()
        if peak is None:
            skipped.append(one.id)
        else:
            reading, off = one.reading, error_of(peak, one.reading)
            rows.append(Row(one.id, OPERATORS, reading.metric, reading.rank, peak, reading.size, off, ""))
        report(one.id)
    return Accuracy(tuple(rows), _verdicts(outcomes), tuple(skipped), tuple(refused), tuple(replays))


def _made(case: Case) -> tuple[Estimate | None, str]:
    try:
        return case.make(), ""
    except RefusedError:
        raise
    except InputError as error:
        return None, "; ".join(str(problem) for problem in error.problems)
    except TraceError as error:
        return None, str(error)


def _replayed(case: Case, made: Estimate | None) -> list[Replayed]:
    """One where the stream was replayed and the outcome is stated: a margin below zero fails at the capacity."""
    if made is None or not made.peak.replayed or made.verdict.margin is None or case.assumed:
        return []
    return [Replayed(case.id, case.outcome, RAN if made.verdict.margin >= 0 else FAILED)]


def _row(case: Case, reading: Reading, made: Estimate | None, failed: str) -> Row:
    if made is None:
        return Row(case.id, case.group, reading.metric, reading.rank, None, reading.size, 1.0, failed, case.inputs)
    expected = expected_of(made, reading.metric)
    error = error_of(expected, reading)
    return Row(case.id, case.group, reading.metric, reading.rank, expected, reading.size, error, "", case.inputs)


def _verdicts(outcomes: Sequence[tuple[Case, str | None]]) -> Verdicts:
    stated = [(case.outcome, outcome) for case, outcome in outcomes if not case.assumed and outcome is not None]
    return Verdicts(
        n=len(outcomes),
        false_fits=stated.count((FAILED, FITS)),
        false_alarms=stated.count((RAN, TOO_LARGE)),
        tight=sum(outcome == TIGHT for _, outcome in stated),
        assumed=sum(case.assumed for case, _ in outcomes),
        failed=sum(outcome is None for _, outcome in outcomes),
    )
