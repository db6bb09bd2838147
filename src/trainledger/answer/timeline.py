"""Memory over the course of a run on one rank: after every action of its schedule, and at most within it."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.answer.acting import groups_of
from trainledger.answer.check import check, check_model
from trainledger.answer.check_acting import acts
from trainledger.answer.estimate import architecture_of, device_of
from trainledger.ledger.rank import rank_ledger
from trainledger.lines.stream import EMPTY
from trainledger.model.build import model_of
from trainledger.plan.lengths import at_longest
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Tick:
    """One action, or another moment: bytes allocated at most within it, and once it is done."""

    name: str
    most: int
    after: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The ticks of a run in order, on this rank. Blocks' ends, which a replay finds, are not counted."""

    rank: int
    ticks: tuple[Tick, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """What each tick holds at most, of what the run does."""
        high = max((tick.most for tick in self.ticks), default=0) or 1
        return tuple(tick.most / high for tick in self.ticks)


def timeline(plan: Plan, rank: int | None = None) -> Timeline:
    """The timeline of a resolved plan: of the fullest rank, or of the one asked for.

    Raises InputError as `estimate` does.
    """
    plan = at_longest(plan)
    check(plan)
    model = model_of(plan)
    check_model(plan, model)
    device = device_of(plan)
    ledger = rank_ledger(plan, model, architecture_of(device), rank, each=True)
    if acts(plan):
        ledger = groups_of(plan, ledger, architecture_of(device), device)[0].ledger
    units = [line.unit for line in ledger.lines]
    ticks: list[Tick] = []
    total = 0
    for moment, events, repeat, _ in ledger.segments:
        most = total
        for _ in range(repeat):
            for event in events:
                if event != EMPTY:
                    total += units[event - 1] if event > 0 else -units[-event - 1]
                    most = max(most, total)
        if ticks and ticks[-1].name == moment:
            ticks[-1] = Tick(moment, max(ticks[-1].most, most), total)
        else:
            ticks.append(Tick(moment, most, total))
    return Timeline(ledger.rank or rank or 0, tuple(ticks))
