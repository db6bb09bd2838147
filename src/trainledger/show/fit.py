"""Limits of a plan as sections of text, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.answer.anchor import Unexplained
from trainledger.answer.changed import LEFT_OUT
from trainledger.answer.fit import Fit, Limit, Point
from trainledger.answer.need import Trial
from trainledger.facts.fit_knobs import CONFIDENCE, KNOBS, Knob
from trainledger.show.budgets import band
from trainledger.show.compare import signed
from trainledger.show.estimate import View
from trainledger.show.table import Section


def sections(found: Fit, view: View) -> tuple[Section, ...]:
    """Everything that `fit` prints."""
    return (
        _now(found, view),
        *_unexplained(found.unexplained, found.now, view),
        _limits(found, view),
        _notes(found),
        _refused(found),
        _frontier(found, view),
    )


def document(found: Fit) -> dict[str, Any]:
    """What `fit --json` prints: sizes in bytes."""
    return {
        "confidence": found.confidence,
        "usable": found.now.usable,
        "outcome": found.outcome,
        "plan": _trial(found.now),
        "limits": [_limit(limit) for limit in found.limits],
        "frontier": [
            {
                _key(found.axes[1]): point.at,
                _key(found.axes[0]): point.found.best.value if point.found.best else None,
                "best": _trial(point.found.best),
                "next": _trial(point.found.next),
            }
            for point in found.frontier
        ],
        "unexplained": _line(found.unexplained),
    }


def _key(knob: Knob) -> str:
    return knob.value.replace("-", "_")


def _limit(limit: Limit) -> dict[str, Any]:
    row = KNOBS[limit.knob]
    return {
        "find": limit.knob.value,
        "key": row.path,
        "unit": row.unit,
        "looked_for": "largest" if row.largest else "smallest",
        "own": limit.own,
        "step": limit.step or None,
        "value": limit.found.best.value if limit.found.best else None,
        "set": _set(limit.found.best),
        "best": _trial(limit.found.best),
        "next": _trial(limit.found.next),
        "fits_beyond": [one.value for one in limit.found.beyond],
        "refused": [{"value": one.value, "why": one.problem} for one in limit.refused],
        "notes": list(limit.notes),
    }


def _set(trial: Trial | None) -> dict[str, Any] | None:
    """Keys of the plan with their values; null: left out."""
    if trial is None:
        return None
    return {one.path: None if one.value is LEFT_OUT else one.value for one in trial.changes}


def _trial(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {
        "value": trial.value,
        "fits": trial.fits,
        "need": band(trial.need),
        "unexplained": trial.beside,
        "margin": trial.margin if not trial.problem else None,
        "moment": trial.moment,
        "exact": trial.exact,
        "elsewhere": trial.elsewhere,
        "problem": trial.problem,
    }


def _line(found: Unexplained | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "metric": found.metric,
        "rules": [{"rule": rule.value, "bytes_per_unit": rate} for rule, rate in found.rates],
        "error": found.error,
        "runs": [
            {
                "run": one.run, "measured": one.measured, "expected": one.expected, "unexplained": one.unexplained,
                "tokens": one.tokens, "layers": one.layers, "fitted": one.fitted,
            }
            for one in found.residuals
        ],
    }  # fmt: skip


def _now(found: Fit, view: View) -> Section:
    now, word = found.now, "fits" if found.now.fits else "does not fit"
    room = f"{view.size(abs(now.margin))} {'left' if now.margin >= 0 else 'short'}"
    return Section(
        f"The plan as it stands {word}: {room} of {view.size(now.usable)}",
        (f"counted {_end(found)}; the peak is at {now.moment}", *([now.elsewhere] if now.elsewhere else ())),
    )


def _end(found: Fit) -> str:
    if found.confidence == CONFIDENCE.high:
        return "with the interval's high end"
    if found.confidence == CONFIDENCE.expected:
        return "with the expected value: every other run needs more"
    return f"at a confidence of {found.confidence:g}, between the expected value and the interval's high end"


def _unexplained(found: Unexplained | None, now: Trial, view: View) -> Iterator[Section]:
    if found is None:
        return
    rules = " or ".join(rule.value for rule, _ in found.rates)
    if len(found.rates) > 1:
        how = (
            f"one run cannot tell how it grows ({rules}): the most that any says counts, the interval holds the others"
        )
    else:
        how = f"carried {rules}, which misses the runs by least: by {view.size(found.error)} at most"
    text = (how, f"in this plan: {signed(now.beside, view)} of the need")
    rows = tuple(
        (one.run, view.size(one.measured), view.size(one.expected), signed(one.unexplained, view), f"{one.tokens:,}")
        for one in found.residuals
    )
    header = ("run", "measured", "estimated", "unexplained", "tokens")
    yield Section(f"Unexplained: {found.metric}, measured less estimated", text, header, rows, (1, 2, 3, 4))


def _limits(found: Fit, view: View) -> Section:
    rows = [row for limit in found.limits for row in _rows(limit, view)]
    header = ("what", "limit", "plan has", "margin", "peak at", "the next one, which does not fit")
    return Section("Limits, each with the plan's other keys as they stand", (), header, tuple(rows), (1, 2, 3))


def _rows(limit: Limit, view: View) -> Iterator[tuple[str, ...]]:
    row, best = KNOBS[limit.knob], limit.found.best
    what = f"{'largest' if row.largest else 'smallest'} {limit.knob.value}{f' ({row.unit})' if row.unit else ''}"
    own = _text(limit.own)
    if best is None:
        worst = limit.found.next
        short = view.size(worst.margin) if worst and not worst.problem and not worst.elsewhere else "-"
        where = worst.moment if worst else "-"
        yield (what, "none fits", own, short, where, _next(limit, view))
        return
    yield (what, _text(best.value), own, view.size(best.margin), best.moment, _next(limit, view))


def _next(limit: Limit, view: View) -> str:
    other = limit.found.next
    if other is None:
        return "-"
    return f"{_text(other.value)}: {_wall(other, view)}"


def _wall(trial: Trial, view: View) -> str:
    """Why a trial does not fit."""
    if trial.problem or (trial.elsewhere and trial.margin >= 0):
        return trial.problem or trial.elsewhere
    return f"{'' if trial.exact else 'at least '}{view.size(-trial.margin)} short at {trial.moment}"


def _text(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value


def _notes(found: Fit) -> Section:
    notes = [f"- {limit.knob.value}: {note}" for limit in found.limits for note in limit.notes]
    return Section("Notes" if notes else "", tuple(notes))


def _refused(found: Fit) -> Section:
    rows = tuple((limit.knob.value, _text(one.value), one.problem) for limit in found.limits for one in limit.refused)
    return Section("Choices that make no plan, or cannot be estimated", (), ("what", "value", "why"), rows)


def _frontier(found: Fit, view: View) -> Section:
    rows = tuple(_point(point, view) for point in found.frontier)
    sought, across = (knob.value for knob in found.axes)
    header = (across, sought, "margin", "peak at", "the wall: one more")
    return Section(f"Frontier: the largest {sought} of each {across}", (), header, rows, (0, 1, 2))


def _point(point: Point, view: View) -> tuple[str, ...]:
    best, wall = point.found.best, point.found.next
    more = "-" if wall is None else _wall(wall, view)
    if best is None:
        return (f"{point.at:,}", "0", "-", "-", more)
    return (f"{point.at:,}", _text(best.value), view.size(best.margin), best.moment, more)
