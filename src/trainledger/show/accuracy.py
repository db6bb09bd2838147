"""Accuracy as a table for people, as JSON, and as the published page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trainledger.answer.accuracy import Accuracy, Row, Score, Scores
from trainledger.base.units import format_size
from trainledger.show.listing import columns

HEAD = ("group", "metric", "rows", "failed", "median |error|", "95th percentile", "worst", "signed mean")

APART = "Groups in which a source leaves out the sequence, the adapter's rank or its dtype: such rows, and the others"
NUMBERS = tuple(range(HEAD.index("rows"), len(HEAD)))


def document(result: Accuracy) -> dict[str, Any]:
    """The JSON of the contract: groups, verdicts, rows."""
    return {
        "groups": _scores(result.groups),
        "inputs_assumed": _scores(result.apart(False)),
        "inputs_stated": _scores(result.apart(True)),
        "verdicts": {
            name: getattr(result.verdicts, name)
            for name in ("n", "false_fits", "false_alarms", "tight", "assumed", "failed")
        },
        "rows": [_row(row) for row in result.rows],
        "skipped": list(result.skipped),
        "refused": list(result.refused),
        "replays": [
            {"id": one.id, "measured": one.measured, "replay": one.said, "agrees": one.agrees} for one in result.replays
        ],
    }


def _scores(groups: Scores) -> dict[str, Any]:
    return {group: {metric: _score(score) for metric, score in metrics.items()} for group, metrics in groups.items()}


def _score(score: Score) -> dict[str, Any]:
    return {name: getattr(score, name) for name in ("n", "failed", "median", "p95", "max", "bias")}


def _row(row: Row) -> dict[str, Any]:
    names = ("id", "group", "metric", "rank", "expected", "measured", "error")
    read = {name: getattr(row, name) for name in names}
    return read | {"failed": bool(row.failed), "why": row.failed, "assumed": list(row.inputs)}


def _cells(group: str, metric: str, score: Score) -> tuple[str, ...]:
    percents = tuple(f"{value:.3%}" for value in (score.median, score.p95, score.max))
    return (group, metric, str(score.n), str(score.failed), *percents, f"{score.bias:+.3%}")


def _table(groups: Scores, mark: str = "") -> list[tuple[str, ...]]:
    return [
        _cells(f"{group}{mark}", metric, score)
        for group, metrics in groups.items()
        for metric, score in metrics.items()
    ]


def _apart(result: Accuracy) -> list[tuple[str, ...]]:
    return sorted([*_table(result.apart(False), ", assumed"), *_table(result.apart(True), ", stated")])


def _verdicts(result: Accuracy) -> str:
    found = result.verdicts
    return (
        f"verdicts: {found.n} runs, {found.false_fits} false fits, {found.false_alarms} false alarms, "
        f"{found.tight} tight, {found.assumed} with an assumed outcome, {found.failed} not estimated; "
        f"the replay at the device's capacity went as {result.agreed} of {len(result.replays)} runs did"
    )


def _worst(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    return [
        (
            row.id,
            row.metric,
            "failed" if row.failed else f"{row.error:+.3%}",
            "-" if row.expected is None else format_size(row.expected),
            format_size(row.measured),
            row.failed,
        )
        for row in rows
    ]


def text(result: Accuracy, worst: Sequence[Row] = ()) -> str:
    """The table by group and metric, the verdicts, and the worst rows."""
    parts = [columns(HEAD, _table(result.groups), right=NUMBERS), _verdicts(result)]
    if found := _apart(result):
        parts += [APART, columns(HEAD, found, right=NUMBERS)]
    if result.skipped:
        parts.append(f"operators that the program lacks, skipped: {len(result.skipped)} (--json lists them)")
    if result.refused:
        parts.append("\n".join(["refused by this engine, in no score:", *(f"  {one}" for one in result.refused)]))
    if worst:
        head = ("id", "metric", "error", "expected", "measured", "why it failed")
        parts.append(columns(head, _worst(worst)))
    return "\n\n".join(parts)


def markdown(result: Accuracy, worst: Sequence[Row]) -> str:
    """The published page: how far estimates are from what runs measured."""
    lines = [
        "# Accuracy",
        "",
        "Estimates held against run records: published measurements of real devices, and runs of real PyTorch on its",
        "own caching allocator over an emulated CUDA runtime (`emulated-*`). Error = (expected - measured) / measured",
        "over whole steps; a record that cannot be estimated counts as an error of 100 % and as failed. Written by",
        "`trainledger accuracy RECORDS... --markdown`.",
        "",
        *_markdown(HEAD, _table(result.groups)),
        "",
        f"{_verdicts(result).capitalize()}. Operators that the program lacks: {len(result.skipped)}, left out above.",
        "",
        "## Runs whose record assumes what moves its size most",
        "",
        f"{APART}.",
        "",
        *_markdown(HEAD, _apart(result)),
        "",
        "## Largest errors of what was estimated",
        "",
        *_markdown(("id", "metric", "error", "expected", "measured", ""), _worst(worst)),
    ]
    refused = [(group, reason, str(count)) for group, reason, count in result.refusals()]
    if refused:
        lines += ["", "## Not estimated, by first reason", "", *_markdown(("group", "reason", "rows"), refused)]
    return "\n".join(lines) + "\n"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruled = [_ruled(head), "|" + " --- |" * len(head)]
    return [*ruled, *(_ruled(row) for row in rows)]


def _ruled(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
