"""Stages of a pipeline beside the fullest: the first and the last hold other things than layers, and how blocks fall
decides which of them reserves the most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from trainledger.allocator.conf import Conf
from trainledger.answer.bands import Peak, peaks_of
from trainledger.answer.replayed import Replayed, replayed
from trainledger.ledger.rank import Ledger
from trainledger.plan.schema import Plan


class Stage(NamedTuple):
    """A stage's ledger, its replay (None: nothing is replayed), and its peaks: over the whole run, and over steps."""

    ledger: Ledger
    run: Replayed | None
    peaks: tuple[Peak, Peak]

    @classmethod
    def of(cls, plan: Plan, ledger: Ledger, run: Replayed | None) -> Stage:
        """The stage of a ledger."""
        return cls(ledger, run, peaks_of(plan, run.ledger if run else ledger, run))


def stages_of(plan: Plan, own: Stage, conf: Conf) -> tuple[Stage, ...]:
    """The fullest stage, and those that its ledger has beside it, replayed as it was."""
    if own.run is None:
        return (own,)
    others = ((ledger, replayed(ledger, conf)) for ledger in own.ledger.beside)
    return (own, *(Stage.of(plan, ledger, run) for ledger, run in others if run is not None))


def fullest(stages: Sequence[Stage]) -> Stage:
    """The stage that reserves the most."""
    return max(stages, key=lambda one: one.peaks[0].reserved.expected)


def peaks(stages: Sequence[Stage]) -> tuple[Peak, Peak]:
    """The first stage's peaks, with what the stage reserves that reserves the most."""
    whole, steps = (_reserving(stages, at) for at in range(len(stages[0].peaks)))
    return whole, steps


def _reserving(stages: Sequence[Stage], at: int) -> Peak:
    own, most = stages[0], max(stages, key=lambda one: one.peaks[at].reserved.expected)
    if most is own:
        return own.peaks[at]
    return replace(own.peaks[at], reserved=most.peaks[at].reserved, reserver=most.ledger.rank)
