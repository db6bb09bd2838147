"""Schedules whose ranks have two model chunks: ZB-V, DualPipe and DualPipeV."""

from __future__ import annotations

from trainledger.facts.pipelines import Paired, Vee
from trainledger.lines.actions import Action, Kind, Recorder


def vee(row: Vee, ranks: int, rank: int, micro_batches: int) -> tuple[Action, ...]:
    """ZB-V as torch writes it down: chunk 0 on the way down the ranks, chunk 1 on the way back.

    It is drawn for as many micro-batches as fill the pipeline; those that there are not are then left out.
    """
    drawn = max(row.hop * (ranks - 1) + 1, micro_batches)
    recorder = Recorder()
    for _ in range(row.hop * (ranks - 1 - rank) + 1):
        recorder.forward(0)
    for _ in range(rank):
        recorder.forward(1)
        recorder.forward(0)
    for _ in range(ranks - rank):
        recorder.forward(1)
        _both_halves(recorder, 1)
    while recorder.done(Kind.FORWARD, 1) < recorder.done(Kind.FORWARD, 0) or recorder.done(Kind.FORWARD, 0) < drawn:
        if recorder.done(Kind.FORWARD, 0) < drawn:
            recorder.forward(0)
        _both_halves(recorder, 0)
        recorder.forward(1)
        _both_halves(recorder, 1)
    for _ in range(rank):
        recorder.input(0)
        recorder.input(1)
    for _ in range(ranks - rank):
        recorder.input(0)
        recorder.weight(0)
    recorder.weights(1)
    recorder.weights(0)
    return tuple(one for one in recorder.actions if one.micro_batch < micro_batches)


def _both_halves(recorder: Recorder, chunk: int) -> None:
    recorder.input(chunk)
    recorder.weight(chunk)


def paired(row: Paired, ranks: int, rank: int, micro_batches: int) -> tuple[Action, ...]:
    """DualPipe, or DualPipeV, step by step as its code runs; overlapped pairs as the forward and then the backward.

    DualPipe: micro-batches of the first half enter at the first rank and run through chunk 0, those of the second half
    enter at the last rank and run through chunk 1. DualPipeV: each runs down through chunks 0 and back through 1.
    """
    deep, each = ranks // row.directions, micro_batches // row.directions
    place = min(rank, ranks - 1 - rank) if row.directions > 1 else rank
    behind = deep - 1 - place
    recorder = Recorder()
    for _ in range(row.hop * behind):
        recorder.forward(0)
    for _ in range(place + 1):
        recorder.forward(0)
        recorder.forward(1)
    for _ in range(behind):
        recorder.input(1)
        recorder.weight()
        recorder.forward(1)
    for _ in range(each - row.hop * deep + place + 1):
        recorder.forward(0)
        recorder.backward(1)
        recorder.forward(1)
        recorder.backward(0)
    for _ in range(behind):
        recorder.backward(1)
        recorder.forward(1)
        recorder.backward(0)
    _closing(recorder, row, place, behind)
    swap = row.directions > 1 and rank >= deep
    return tuple(_named(one, swap, each if row.directions > 1 else 0) for one in recorder.actions)


def _closing(recorder: Recorder, row: Paired, place: int, behind: int) -> None:
    """The backwards that are left: whole ones first, then halves whose weight gradients fill the end."""
    whole = (place + 1) // row.half
    odd = place % row.half
    for step in range(place + 1):
        later = step > whole
        _backward(recorder, 1, later or (step == whole and odd == 1))
        _backward(recorder, 0, later or step == whole)
    for _ in range(behind):
        recorder.weight()
        recorder.input(0)
    recorder.weights()


def _backward(recorder: Recorder, chunk: int, split: bool) -> None:
    if split:
        recorder.input(chunk)
    else:
        recorder.backward(chunk)


def _named(action: Action, swap: bool, each: int) -> Action:
    """The action under its own chunk: of DualPipe's two, the second half of the ranks runs the other one first."""
    chunk = 1 - action.chunk if swap else action.chunk
    return Action(action.kind, action.micro_batch + chunk * each, chunk)
